// All settings of a subscription: what can be changed while it is used, and what was fixed when it was created.

import { useQuery, useQueryClient } from "@tanstack/react-query";

import type { Fields } from "../api/client";
import { callQuery, usePermissions } from "../api/queries";
import { callsOf, commandOf, perform, shownOf, SUBSCRIPTION, type TopicOptions } from "../api/settings";
import type { Subscription } from "../api/types";
import { CopyAs } from "./CopyAs";
import { Loading, Problem } from "./parts";
import { SettingsForm } from "./SettingsForm";
import { TopicSettings } from "./TopicSettings";

const UPDATE = "pubsub.subscriptions.update";

export function SubscriptionSettings({ name, config }: { name: string; config: Subscription }) {
  const found = useQuery(callQuery<Fields>(SUBSCRIPTION.options, { subscription: name }));
  const topic = useQuery({ ...callQuery<TopicOptions>("Admin.GetTopicOptions", { topic: config.topic }), enabled: config.topic.startsWith("projects/") });
  const rights = usePermissions(name, [UPDATE]);
  const queries = useQueryClient();
  if (found.isError) return <Problem error={found.error} />;
  if (found.isPending || !rights.known) return <Loading />;
  const resource = config as unknown as Fields;
  return (
    <>
      <SettingsForm
        title={topic.data?.queue ? "Queue settings for receiving" : "Subscription settings"}
        may={rights.has(UPDATE)}
        settings={SUBSCRIPTION.settings}
        shown={(setting) => shownOf(setting, resource, found.data)}
        save={async (changed) => {
          await perform(callsOf(SUBSCRIPTION, resource, changed));
          await queries.invalidateQueries({ queryKey: [SUBSCRIPTION.options] });
          await queries.invalidateQueries({ queryKey: ["Subscriber.GetSubscription"] });
        }}
        copy={(changed) => {
          const first = callsOf(SUBSCRIPTION, resource, changed)[0] ?? { method: SUBSCRIPTION.options, request: { subscription: name } };
          return <CopyAs cli={commandOf(SUBSCRIPTION, name, "update", changed)} {...first} />;
        }}
      />
      {topic.data?.queue && <TopicSettings topic={config.topic} />}
    </>
  );
}
