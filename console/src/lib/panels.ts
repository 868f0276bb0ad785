// What the page of history shows: families of metrics, and by which labels each may be grouped.

import type { HistoryQuestion } from "../api/monitor";

export type GroupName = "total" | "topic" | "subscription" | "project" | "region" | "zone" | "task" | "method" | "code" | "disk" | "chain" | "prober" | "endpoint";

const GROUPS: Record<GroupName, readonly string[]> = {
  total: [],
  topic: ["project", "topic"],
  subscription: ["project", "subscription"],
  project: ["project"],
  region: ["region"],
  zone: ["zone"],
  task: ["process"],
  method: ["method"],
  code: ["code"],
  disk: ["process", "chain", "disk"],
  chain: ["chain"],
  prober: ["prober"],
  endpoint: ["endpoint"],
};

export const BY_NAMES: Record<GroupName, string> = {
  total: "total",
  topic: "topic",
  subscription: "subscription",
  project: "project",
  region: "region",
  zone: "zone",
  task: "process",
  method: "method",
  code: "status",
  disk: "disk",
  chain: "chain",
  prober: "prober",
  endpoint: "endpoint",
};

export const groupOf = (name: GroupName): readonly string[] => GROUPS[name];

export interface PanelQuestion extends HistoryQuestion {
  title?: string;
  unit?: string;
  /** Of what several processes say of the same thing. */
  largest?: boolean;
}

export interface HistoryPanel {
  name: string;
  title: string;
  note?: string;
  unit?: string;
  /** Whether parts make a total, so that they are drawn on top of each other. */
  adds: boolean;
  /** Several charts below one time. */
  together?: boolean;
  groups: readonly GroupName[];
  questions: PanelQuestion[];
}

const PLACES = ["region", "zone", "task"] as const;
const OF_TOPICS: readonly GroupName[] = ["total", "topic", "project", ...PLACES];
const OF_SUBSCRIPTIONS: readonly GroupName[] = ["total", "subscription", "project", ...PLACES];

const panel = (name: string, title: string, family: string, groups: readonly GroupName[], more: Partial<HistoryPanel> & { question?: Partial<HistoryQuestion> } = {}): HistoryPanel => {
  const { question = {}, ...rest } = more;
  return { name, title, adds: true, groups, questions: [{ family, ...question }], ...rest };
};

export const NAMED_PANELS: readonly HistoryPanel[] = [
  panel("published", "Messages published", "syncpoint_topic_messages_total", OF_TOPICS),
  panel("bytes", "Bytes published", "syncpoint_topic_bytes_total", OF_TOPICS),
  panel("delivered", "Messages delivered", "syncpoint_subscription_messages_total", OF_SUBSCRIPTIONS),
  panel("acknowledged", "Messages acknowledged", "syncpoint_subscription_acknowledged_total", OF_SUBSCRIPTIONS),
  panel("redelivered", "Messages redelivered", "syncpoint_subscription_redelivered_total", OF_SUBSCRIPTIONS),
  panel("backlog", "Backlog", "syncpoint_subscription_backlog_messages", OF_SUBSCRIPTIONS, { note: "unacknowledged messages" }),
  panel("oldest", "Age of the oldest unacknowledged message", "syncpoint_subscription_oldest_unacked_age_seconds", OF_SUBSCRIPTIONS, { adds: false, unit: "seconds", note: "maximum of each group" }),
  {
    name: "publishers",
    title: "Publishers",
    note: "topics, bytes, batches, messages, outstanding bytes",
    adds: false,
    together: true,
    groups: ["total"],
    questions: [
      { title: "Topics", family: "syncpoint_catalog_topics", groupBy: ["process"], largest: true },
      { title: "Bytes", family: "syncpoint_publish_bytes_total", unit: "bytes/s" },
      { title: "Batches", family: "syncpoint_publish_batch_messages", unit: "1/s" },
      { title: "Messages", family: "syncpoint_publish_messages_total", unit: "1/s" },
      { title: "Outstanding bytes", family: "syncpoint_publish_in_flight_bytes", unit: "bytes" },
    ],
  },
  panel("latency", "Publish latency, 99th percentile", "syncpoint_call_seconds", ["total", ...PLACES], { adds: false, unit: "seconds", question: { labels: ["method=Publisher.Publish", "listener=clients"], quantile: 0.99 } }),
  panel("delivery", "Publish to delivery latency, 99th percentile", "syncpoint_delivery_latency_seconds", ["total", ...PLACES], { adds: false, unit: "seconds", question: { quantile: 0.99 } }),
  panel("calls", "Client calls", "syncpoint_calls_total", ["total", "method", "code", ...PLACES], { question: { labels: ["listener=clients"] } }),
  panel("commits", "Group commit time, 99th percentile", "syncpoint_disk_commit_seconds", ["total", "disk", ...PLACES], { adds: false, unit: "seconds", question: { quantile: 0.99 } }),
  panel("lacking", "Under-replicated entries", "syncpoint_log_under_replicated_entries", ["total", "chain", ...PLACES]),
  panel("cpu", "CPU", "process_cpu_seconds_total", ["total", ...PLACES], { unit: "seconds/s", note: "100% is one core" }),
  panel("memory", "Memory", "process_resident_memory_bytes", ["total", ...PLACES]),
  panel("probed", "Prober messages", "syncpoint_prober_messages_total", ["total", "prober", "endpoint"]),
  panel("steps", "Prober step times, latest run", "syncpoint_prober_step_newest_seconds", ["total", "prober", "endpoint"], { adds: false, unit: "seconds", note: "sum of all steps" }),
];

const FAMILY: readonly GroupName[] = ["total", "topic", "subscription", "project", "method", "code", "chain", "disk", "prober", "endpoint", ...PLACES];

/** By its name; of a family that is named instead, a panel of its own. */
export function panelOf(name: string | undefined, family: string | undefined): HistoryPanel {
  if (family !== undefined) return panel("family", family, family, FAMILY, { adds: !/_seconds$|_ratio$/.test(family) });
  return NAMED_PANELS.find((one) => one.name === name) ?? (NAMED_PANELS[0] as HistoryPanel);
}
