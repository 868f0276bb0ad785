// All settings of a topic, or of a queue's sending side.

import { useQuery, useQueryClient } from "@tanstack/react-query";

import type { Fields } from "../api/client";
import { callQuery, usePermissions } from "../api/queries";
import { callsOf, commandOf, perform, shownOf, TOPIC, type TopicOptions } from "../api/settings";
import { CopyAs } from "./CopyAs";
import { Badge, Loading, Problem } from "./parts";
import { SettingsForm } from "./SettingsForm";

const UPDATE = "pubsub.topics.update";

export function TopicSettings({ topic }: { topic: string }) {
  const found = useQuery(callQuery<TopicOptions & Fields>(TOPIC.options, { topic }));
  const config = useQuery(callQuery<Fields>("Publisher.GetTopic", { topic }));
  const rights = usePermissions(topic, [UPDATE]);
  const queries = useQueryClient();
  if (found.isError || config.isError) return <Problem error={found.error ?? config.error} />;
  if (found.isPending || config.isPending || !rights.known) return <Loading />;
  const queue = found.data.queue;
  return (
    <SettingsForm
      title={queue ? "Queue settings for sending" : "Topic settings"}
      note={queue ? <Badge>queue: one subscription of the same name</Badge> : "apply to messages published from now on"}
      may={rights.has(UPDATE)}
      settings={TOPIC.settings}
      shown={(setting) => shownOf(setting, config.data, found.data)}
      save={async (changed) => {
        await perform(callsOf(TOPIC, config.data, changed));
        await queries.invalidateQueries({ queryKey: [TOPIC.options] });
        await queries.invalidateQueries({ queryKey: ["Publisher.GetTopic"] });
      }}
      copy={(changed) => {
        const first = callsOf(TOPIC, config.data, changed)[0] ?? { method: TOPIC.options, request: { topic } };
        return <CopyAs cli={commandOf(TOPIC, topic, "update", changed)} {...first} />;
      }}
    />
  );
}
