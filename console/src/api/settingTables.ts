// The settings of topics and subscriptions, one line each.

import type { Setting } from "./settings";

/** The names and values in `a=b, c=d`; null: they are none. */
export function pairs(text: string): Record<string, string> | null {
  const found = text.split(",").map((one) => one.trim().split("="));
  return found.every((one) => one.length === 2 && one[0] !== "") ? Object.fromEntries(found as [string, string][]) : null;
}

const LABELS: Setting = { key: "labels", label: "Labels", option: "--update-labels", kind: "pairs", path: "labels", group: "General", hint: "Such as team=core, env=prod." };
const TRANSFORMS: Setting = {
  key: "messageTransforms",
  label: "Message transforms",
  option: "--message-transforms-file",
  clear: "--clear-message-transforms",
  kind: "json",
  path: "messageTransforms",
  group: "Transforms",
  hint: "A list in JSON, as the API has it.",
};

export const TOPIC_SETTINGS: readonly Setting[] = [
  { key: "sendSuspended", label: "Sending suspended", option: "--suspend", off: "--resume", kind: "flag", path: "sendSuspended", options: true, group: "General", hint: "Rejects publishes; stored messages are still delivered." },
  { key: "messageRetentionDuration", label: "Message retention duration", option: "--message-retention-duration", clear: "--clear-message-retention-duration", kind: "span", path: "messageRetentionDuration", group: "General", usual: true, hint: "Keeps acknowledged messages too, so that subscriptions can seek back to them, 10m to 31d. Empty: only until all have acknowledged." },
  { key: "defaultTtl", label: "Time to live", option: "--default-ttl", clear: "--clear-default-ttl", kind: "span", path: "defaultTtl", options: true, group: "General", hint: "Maximum age of messages for all subscriptions, from 1s. Empty: no limit within the retention." },
  { key: "duplicateDetectionWindow", label: "Duplicate detection", option: "--duplicate-window", clear: "--clear-duplicate-window", kind: "span", path: "duplicateDetectionWindow", options: true, group: "General", usual: true, hint: "Drops messages with the same sys.MessageId within this window, 20s to 7d. Empty: off." },
  { ...LABELS, usual: true },
  { key: "schema", label: "Schema", option: "--schema", clear: "--clear-schema-settings", kind: "schema", path: "schemaSettings.schema", group: "Schema", usual: true, whole: true, hint: "Messages must match it. Empty: any format." },
  { key: "encoding", label: "Message encoding", option: "--message-encoding", kind: "choice", choices: ["", "JSON", "BINARY"], path: "schemaSettings.encoding", group: "Schema", usual: true, hint: "Of messages with a schema." },
  { key: "firstRevisionId", label: "First revision ID", option: "--first-revision-id", clear: "--first-revision-id ''", kind: "text", path: "schemaSettings.firstRevisionId", group: "Schema", hint: "The oldest revision that may be used. Empty: any." },
  { key: "lastRevisionId", label: "Last revision ID", option: "--last-revision-id", clear: "--last-revision-id ''", kind: "text", path: "schemaSettings.lastRevisionId", group: "Schema", hint: "The newest revision that may be used. Empty: any." },
  TRANSFORMS,
  { key: "durabilityClass", label: "Durability class", option: "--durability-class", clear: "--clear-durability-class", kind: "text", path: "durabilityClass", options: true, group: "In a cluster", hint: "How new messages are stored. Empty: the cluster's default." },
  { key: "regions", label: "Allowed regions", option: "--allowed-region", kind: "list", path: "messageStoragePolicy.allowedPersistenceRegions", group: "In a cluster", hint: "Where messages may be stored, separated by commas. Empty: anywhere." },
  { key: "recordsTopic", label: "Records topic", option: "--records-topic", clear: "--clear-records-topic", kind: "topic", path: "recordsTopic", options: true, group: "In a cluster", hint: "Receives delivery records, which syncpoint trace reads. Empty: none are made." },
];

export const SUBSCRIPTION_SETTINGS: readonly Setting[] = [
  { key: "receiveSuspended", label: "Receiving suspended", option: "--suspend", off: "--resume", kind: "flag", path: "receiveSuspended", options: true, group: "Delivery", hint: "Delivers nothing; acknowledgements are still accepted." },
  { key: "filter", label: "Message filter", option: "--message-filter", kind: "text", path: "filter", group: "Delivery", fixed: true, usual: true, hint: 'Only messages whose attributes match, such as attributes.region = "eu". Cannot be changed later.' },
  { key: "enableMessageOrdering", label: "Enable message ordering", option: "--enable-message-ordering", kind: "flag", path: "enableMessageOrdering", group: "Delivery", fixed: true, usual: true, hint: "Delivers each ordering key in order. Cannot be changed later." },
  { key: "enableExactlyOnceDelivery", label: "Enable exactly-once delivery", option: "--enable-exactly-once-delivery", kind: "flag", path: "enableExactlyOnceDelivery", group: "Delivery", usual: true, hint: "A successful acknowledgement is final." },
  { key: "ackDeadlineSeconds", label: "Ack deadline (seconds)", option: "--ack-deadline", kind: "count", path: "ackDeadlineSeconds", none: "10", group: "Delivery", usual: true, hint: "Time to acknowledge a message before it is redelivered, 10 to 600. Service Bus: lock duration." },
  { key: "forwardTo", label: "Forward to", option: "--forward-to", clear: "--clear-forward", kind: "topic", path: "forwardTo", options: true, group: "Delivery", hint: "Topic or queue to publish messages to, instead of delivering them." },
  { key: "earlyDelivery", label: "Early delivery", option: "--early-delivery", kind: "flag", path: "earlyDelivery", options: true, group: "Delivery", hint: "Delivers before the write completes: faster, but the publish of a delivered message may still fail." },
  { key: "minRetryDelay", label: "Min retry delay", option: "--min-retry-delay", clear: "--clear-retry-policy", kind: "span", path: "retryPolicy.minimumBackoff", group: "Retry and dead letters", usual: true, hint: "First pause before a redelivery, 0 to 600s. Empty: without a pause." },
  { key: "maxRetryDelay", label: "Max retry delay", option: "--max-retry-delay", clear: "--clear-retry-policy", kind: "span", path: "retryPolicy.maximumBackoff", group: "Retry and dead letters", usual: true, hint: "Longest pause before a redelivery, up to 600s." },
  { key: "deadLetterTopic", label: "Dead-letter topic", option: "--dead-letter-topic", clear: "--clear-dead-letter-policy", kind: "topic", path: "deadLetterPolicy.deadLetterTopic", whole: true, group: "Retry and dead letters", usual: true, hint: "Receives messages after the maximum delivery attempts. Empty: retry until they expire." },
  { key: "maxDeliveryAttempts", label: "Max delivery attempts", option: "--max-delivery-attempts", kind: "count", path: "deadLetterPolicy.maxDeliveryAttempts", group: "Retry and dead letters", usual: true, hint: "Attempts before a message is dead-lettered, 5 to 100." },
  { key: "deadLetterExpired", label: "Dead-letter expired messages", option: "--dead-letter-expired", off: "--drop-expired", kind: "flag", path: "deadLetterExpired", options: true, group: "Retry and dead letters", hint: "Otherwise, messages that exceed their time to live are dropped." },
  { key: "deadLetterRuleErrors", label: "Dead-letter on rule errors", option: "--dead-letter-rule-errors", kind: "flag", path: "deadLetterRuleErrors", options: true, group: "Retry and dead letters", hint: "Otherwise, messages on which a rule fails are skipped." },
  { key: "messageRetentionDuration", label: "Message retention duration", option: "--message-retention-duration", kind: "span", path: "messageRetentionDuration", group: "Retention and expiration", hint: "How long unacknowledged messages are kept, 10m to 31d." },
  { key: "retainAckedMessages", label: "Retain acked messages", option: "--retain-acked-messages", kind: "flag", path: "retainAckedMessages", group: "Retention and expiration", hint: "Keeps acknowledged messages too, so that a seek can bring them back." },
  { key: "ttl", label: "Time to live", option: "--ttl", clear: "--clear-ttl", kind: "span", path: "ttl", options: true, group: "Retention and expiration", hint: "Maximum age of messages for this subscription, such as 2h. Empty: use the topic's." },
  { key: "expirationPeriod", label: "Expiration period", option: "--expiration-period", kind: "span", never: true, path: "expirationPolicy.ttl", group: "Retention and expiration", hint: "Deletes the subscription when unused this long, from 1d, or never." },
  LABELS,
  { key: "pushEndpoint", label: "Push endpoint", option: "--push-endpoint", clear: "--push-endpoint ''", kind: "text", path: "pushConfig.pushEndpoint", whole: true, group: "Push", usual: true, hint: "Pushes messages to this URL (https). Empty: they are pulled." },
  { key: "pushAuthServiceAccount", label: "Push auth service account", option: "--push-auth-service-account", kind: "text", path: "pushConfig.oidcToken.serviceAccountEmail", group: "Push", hint: "Signs pushes as this service account." },
  { key: "pushAuthTokenAudience", label: "Push auth token audience", option: "--push-auth-token-audience", kind: "text", path: "pushConfig.oidcToken.audience", group: "Push", hint: "Empty: the endpoint." },
  { key: "pushNoWrapper", label: "Push without wrapper", option: "--push-no-wrapper", off: "--push-wrapper", kind: "presence", path: "pushConfig.noWrapper", group: "Push", hint: "Pushes the bare data, without the JSON wrapper." },
  { key: "pushWriteMetadata", label: "Push metadata in headers", option: "--push-no-wrapper-write-metadata", kind: "flag", path: "pushConfig.noWrapper.writeMetadata", group: "Push", hint: "Without a wrapper: attributes and metadata." },
  { key: "bucket", label: "Cloud Storage bucket", option: "--cloud-storage-bucket", clear: "--cloud-storage-bucket ''", kind: "text", path: "cloudStorageConfig.bucket", whole: true, group: "Export", hint: "Writes messages to files in this bucket. Empty: no export." },
  { key: "filePrefix", label: "File prefix", option: "--cloud-storage-file-prefix", kind: "text", path: "cloudStorageConfig.filenamePrefix", group: "Export" },
  { key: "fileSuffix", label: "File suffix", option: "--cloud-storage-file-suffix", kind: "text", path: "cloudStorageConfig.filenameSuffix", group: "Export" },
  { key: "maxDuration", label: "Max duration of a file", option: "--cloud-storage-max-duration", kind: "span", path: "cloudStorageConfig.maxDuration", group: "Export", hint: "1m to 10m." },
  { key: "maxBytes", label: "Max bytes of a file", option: "--cloud-storage-max-bytes", kind: "count", path: "cloudStorageConfig.maxBytes", group: "Export", hint: "At least 1000." },
  TRANSFORMS,
];
