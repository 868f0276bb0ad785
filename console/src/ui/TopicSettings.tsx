// What of a topic or a queue can be changed while it is used: times to live, duplicates, suspension.

import { useQuery, useQueryClient } from "@tanstack/react-query";

import { call } from "../api/client";
import { callQuery, usePermissions } from "../api/queries";
import { type TopicOptions, topicOptionsRequest } from "../api/settings";
import { shell } from "../lib/copies";
import { idOf, projectOf, spanOf } from "../lib/format";
import { CopyAs } from "./CopyAs";
import { Badge, Loading, Problem } from "./parts";
import { type Changed, SettingsForm } from "./SettingsForm";

const UPDATE = "pubsub.topics.update";

export function TopicSettings({ topic }: { topic: string }) {
  const query = callQuery<TopicOptions>("Admin.GetTopicOptions", { topic });
  const found = useQuery(query);
  const rights = usePermissions(topic, [UPDATE]);
  const queries = useQueryClient();
  if (found.isError) return <Problem error={found.error} />;
  if (found.isPending || !rights.known) return <Loading />;
  const options = found.data;
  return (
    <SettingsForm
      title={options.queue ? "Queue settings for sending" : "Topic settings"}
      note={options.queue ? <Badge>queue: one subscription of the same name</Badge> : "apply to messages published from now on"}
      may={rights.has(UPDATE)}
      settings={[
        { key: "sendSuspended", label: "Sending suspended", kind: "flag", hint: "Rejects publishes; stored messages are still delivered.", value: options.sendSuspended ?? false },
        { key: "defaultTtl", label: "Time to live", kind: "span", hint: "Maximum age of messages for all subscriptions, from 1s. Empty: no limit within the retention.", value: spanOf(options.defaultTtl) },
        { key: "duplicateDetectionWindow", label: "Duplicate detection", kind: "span", hint: "Drops messages with the same sys.MessageId within this window, 20s to 7d. Empty: off.", value: spanOf(options.duplicateDetectionWindow) },
        { key: "durabilityClass", label: "Durability class", kind: "text", hint: "In a cluster: how new messages are stored. Empty: the cluster's default.", value: options.durabilityClass ?? "" },
      ]}
      save={async (changed) => {
        await call("Admin.UpdateTopicOptions", topicOptionsRequest(topic, changed));
        await queries.invalidateQueries({ queryKey: query.queryKey });
      }}
      copy={(changed) => <CopyAs cli={commandOf(topic, changed)} method={Object.keys(changed).length === 0 ? "Admin.GetTopicOptions" : "Admin.UpdateTopicOptions"} request={Object.keys(changed).length === 0 ? { topic } : topicOptionsRequest(topic, changed)} />}
    />
  );
}

function commandOf(topic: string, changed: Changed): string {
  const of = `${shell(idOf(topic))} --project ${shell(projectOf(topic))}`;
  if (Object.keys(changed).length === 0) return `syncpoint topics describe ${of}`;
  const flags: string[] = [];
  for (const [key, value] of Object.entries(changed)) {
    const text = String(value);
    if (key === "sendSuspended") flags.push(value === true ? "--suspend" : "--resume");
    if (key === "defaultTtl") flags.push(text === "0s" ? "--clear-default-ttl" : `--default-ttl ${text}`);
    if (key === "duplicateDetectionWindow") flags.push(text === "0s" ? "--clear-duplicate-window" : `--duplicate-window ${text}`);
    if (key === "durabilityClass") flags.push(text === "" ? "--clear-durability-class" : `--durability-class ${shell(text)}`);
  }
  return `syncpoint topics update ${of} ${flags.join(" ")}`;
}
