// What of a subscription can be changed while it is used: its lock, attempts, dead letters, time to live, forwarding.

import { useQuery, useQueryClient } from "@tanstack/react-query";

import type { Fields } from "../api/client";
import { callQuery, usePermissions } from "../api/queries";
import { saveSubscription, type SubscriptionOptions, subscriptionOptionsRequest, subscriptionRequest, type TopicOptions } from "../api/settings";
import type { Subscription } from "../api/types";
import { shell } from "../lib/copies";
import { idOf, projectOf, spanOf } from "../lib/format";
import { CopyAs } from "./CopyAs";
import { Loading, Problem } from "./parts";
import { type Changed, SettingsForm } from "./SettingsForm";
import { TopicSettings } from "./TopicSettings";

const UPDATE = "pubsub.subscriptions.update";

export function SubscriptionSettings({ name, config }: { name: string; config: Subscription }) {
  const project = projectOf(name);
  const hasTopic = config.topic.startsWith("projects/");
  const found = useQuery(callQuery<SubscriptionOptions>("Admin.GetSubscriptionOptions", { subscription: name }));
  const topic = useQuery({ ...callQuery<TopicOptions>("Admin.GetTopicOptions", { topic: config.topic }), enabled: hasTopic });
  const rights = usePermissions(name, [UPDATE]);
  const queries = useQueryClient();
  if (found.isError) return <Problem error={found.error} />;
  if (found.isPending || !rights.known) return <Loading />;
  const options = found.data;
  const letters = config.deadLetterPolicy;
  return (
    <>
      <SettingsForm
        title={topic.data?.queue ? "Queue settings for receiving" : "Subscription settings"}
        may={rights.has(UPDATE)}
        settings={[
          { key: "receiveSuspended", label: "Receiving suspended", kind: "flag", hint: "Delivers nothing; acknowledgements are still accepted.", value: options.receiveSuspended ?? false },
          { key: "ackDeadlineSeconds", label: "Ack deadline (seconds)", kind: "count", hint: "Time to acknowledge a message before it is redelivered, 10 to 600. Service Bus: lock duration.", value: String(config.ackDeadlineSeconds ?? 10) },
          { key: "deadLetterTopic", label: "Dead-letter topic", kind: "text", hint: "Receives messages after the maximum delivery attempts. Empty: retry until they expire.", value: letters?.deadLetterTopic ?? "" },
          { key: "maxDeliveryAttempts", label: "Max delivery attempts", kind: "count", hint: "Attempts before a message is dead-lettered, 5 to 100.", value: letters === undefined ? "" : String(letters.maxDeliveryAttempts ?? 5) },
          { key: "ttl", label: "Time to live", kind: "span", hint: "Maximum age of messages for this subscription, such as 2h. Empty: use the topic's.", value: spanOf(options.ttl) },
          { key: "messageRetentionDuration", label: "Retention", kind: "span", hint: "How long unacknowledged messages are kept, 10m to 31d.", value: spanOf(config.messageRetentionDuration) },
          { key: "deadLetterExpired", label: "Dead-letter expired messages", kind: "flag", hint: "Otherwise, messages that exceed their time to live are dropped.", value: options.deadLetterExpired ?? false },
          { key: "deadLetterRuleErrors", label: "Dead-letter on rule errors", kind: "flag", hint: "Otherwise, messages on which a rule fails are skipped.", value: options.deadLetterRuleErrors ?? false },
          { key: "forwardTo", label: "Forward to", kind: "text", hint: "Topic or queue to publish messages to, instead of delivering them.", value: options.forwardTo ?? "" },
          { key: "earlyDelivery", label: "Early delivery", kind: "flag", hint: "Delivers before the write completes: faster, but the publish of a delivered message may still fail.", value: options.earlyDelivery ?? false },
        ]}
        save={async (changed) => {
          await saveSubscription(config, project, changed);
          await queries.invalidateQueries({ queryKey: ["Admin.GetSubscriptionOptions"] });
          await queries.invalidateQueries({ queryKey: ["Subscriber.GetSubscription"] });
        }}
        copy={(changed) => <CopyAs cli={commandOf(name, changed)} {...requestOf(config, project, changed)} />}
      />
      {topic.data?.queue && <TopicSettings topic={config.topic} />}
    </>
  );
}

/** Where a change takes two calls, the first of them. */
function requestOf(config: Subscription, project: string, changed: Changed): { method: string; request: Fields } {
  const own = subscriptionRequest(config, project, changed);
  if (own !== null) return { method: "Subscriber.UpdateSubscription", request: own };
  const options = subscriptionOptionsRequest(config.name, project, changed);
  if (options !== null) return { method: "Admin.UpdateSubscriptionOptions", request: options };
  return { method: "Admin.GetSubscriptionOptions", request: { subscription: config.name } };
}

const FLAGS: Record<string, (value: string | boolean) => string> = {
  receiveSuspended: (value) => (value === true ? "--suspend" : "--resume"),
  ackDeadlineSeconds: (value) => `--ack-deadline ${shell(String(value))}`,
  deadLetterTopic: (value) => (value === "" ? "--clear-dead-letter-policy" : `--dead-letter-topic ${shell(String(value))}`),
  maxDeliveryAttempts: (value) => (value === "" ? "" : `--max-delivery-attempts ${shell(String(value))}`),
  ttl: (value) => (value === "0s" ? "--clear-ttl" : `--ttl ${String(value)}`),
  messageRetentionDuration: (value) => `--message-retention-duration ${String(value)}`,
  deadLetterExpired: (value) => (value === true ? "--dead-letter-expired" : "--drop-expired"),
  deadLetterRuleErrors: (value) => (value === true ? "--dead-letter-rule-errors" : "--no-dead-letter-rule-errors"),
  forwardTo: (value) => (value === "" ? "--clear-forward" : `--forward-to ${shell(String(value))}`),
  earlyDelivery: (value) => (value === true ? "--early-delivery" : "--no-early-delivery"),
};

function commandOf(name: string, changed: Changed): string {
  const of = `${shell(idOf(name))} --project ${shell(projectOf(name))}`;
  const flags = Object.entries(changed).map(([key, value]) => FLAGS[key]?.(value) ?? "");
  return flags.length === 0 ? `syncpoint subscriptions describe ${of}` : `syncpoint subscriptions update ${of} ${flags.filter((one) => one !== "").join(" ")}`;
}
