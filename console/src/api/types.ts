// What the server answers, as far as the console reads it. 64-bit numbers are texts in JSON.

export type Int64 = string;

export interface Topic {
  name: string;
  labels?: Record<string, string>;
  messageRetentionDuration?: string;
  schemaSettings?: { schema: string; encoding?: string; firstRevisionId?: string; lastRevisionId?: string };
  kmsKeyName?: string;
  state?: string;
}

export interface Subscription {
  name: string;
  topic: string;
  labels?: Record<string, string>;
  ackDeadlineSeconds?: number;
  retainAckedMessages?: boolean;
  messageRetentionDuration?: string;
  enableMessageOrdering?: boolean;
  enableExactlyOnceDelivery?: boolean;
  filter?: string;
  detached?: boolean;
  pushConfig?: { pushEndpoint?: string };
  cloudStorageConfig?: { bucket?: string };
  deadLetterPolicy?: { deadLetterTopic?: string; maxDeliveryAttempts?: number };
  retryPolicy?: { minimumBackoff?: string; maximumBackoff?: string };
  expirationPolicy?: { ttl?: string };
  state?: string;
}

export interface SourceState {
  source: Int64;
  logCounter?: Int64;
  firstOffset?: Int64;
  nextOffset?: Int64;
  chain?: number;
}

export interface TopicState {
  topic: string;
  incarnation?: Int64;
  sources?: SourceState[];
  subscriptions?: Int64;
  snapshots?: Int64;
  unknown?: string[];
}

export interface AckState {
  source: Int64;
  startOffset?: Int64;
  firstUnackedOffset?: Int64;
  nextOffset?: Int64;
  ackedMessages?: Int64;
  rangesTotal?: Int64;
  chain?: number;
}

export interface SubscriptionState {
  subscription: string;
  backlogMessages?: Int64;
  backlogBytes?: Int64;
  oldestUnackedAge?: string;
  outstandingMessages?: Int64;
  outstandingBytes?: Int64;
  subscribers?: Int64;
  generation?: Int64;
  sources?: AckState[];
  options?: Record<string, unknown>;
  unknown?: string[];
  deadLetterAdvice?: string;
}

export interface PubsubMessage {
  data?: string;
  attributes?: Record<string, string>;
  messageId?: string;
  publishTime?: string;
  orderingKey?: string;
}

export interface SeekPreview {
  backlogMessages?: Int64;
  returningMessages?: Int64;
  acknowledgedMessages?: Int64;
  unknown?: string[];
}

export interface PeekedMessage {
  message: PubsubMessage;
  source?: Int64;
  offset?: Int64;
  chain?: number;
}

export interface PeekResponse {
  messages?: PeekedMessage[];
  nextPageToken?: string;
  unknown?: string[];
}

export interface ReceivedMessage {
  ackId: string;
  message: PubsubMessage;
  deliveryAttempt?: number;
}

export interface DeadLetter {
  message: PubsubMessage;
  source?: string;
  reason?: string;
  description?: string;
  deliveryAttempts?: number;
  originalMessageId?: string;
  originalPublishTime?: string;
  redrives?: number;
}

export interface Server {
  version: string;
  universe?: Int64;
  startTime?: string;
  uptime?: string;
  durability?: string;
  compiledKernel?: boolean;
  appendedPosition?: Int64;
  persistedPosition?: Int64;
  topics?: Int64;
  subscriptions?: Int64;
  snapshots?: Int64;
  underReplicated?: Int64;
  draining?: boolean;
}

export type DiskStateName = "STATE_UNSPECIFIED" | "OK" | "FAILED" | "HEALING" | "UNKNOWN" | "AWAY" | "DAMAGED";

export interface DiskChain {
  chain?: number;
  state?: DiskStateName;
  reason?: string;
  position?: Int64;
  underReplicated?: Int64;
}

export interface Disk {
  path: string;
  state?: DiskStateName;
  reason?: string;
  freeBytes?: Int64;
  position?: Int64;
  underReplicated?: Int64;
  damaged?: Int64;
  chains?: DiskChain[];
}

export interface Disks {
  disks?: Disk[];
  underReplicated?: Int64;
  unknown?: string[];
}

export interface Member {
  name: string;
  roles?: string[];
  address?: string;
  region?: string;
  zone?: string;
  rack?: string;
  cluster?: string;
  disks?: string[];
  version?: string;
  draining?: boolean;
  connections?: Int64;
  messagesPerSecond?: number;
  bytesPerSecond?: number;
  chains?: Int64;
}

export interface Chain {
  number?: number;
  name?: string;
  durabilityClass?: string;
  region?: string;
  home?: string;
  owner?: string;
  epoch?: Int64;
  disks?: { cluster?: string; disk?: string; process?: string; rack?: string; zone?: string }[];
  belowPolicy?: boolean;
}

export interface DrainState {
  target: string;
  draining?: boolean;
  members?: string[];
  connections?: Int64;
  chains?: Int64;
  comment?: string;
  createTime?: string;
}

/** Counters that only grow, of this server, and the busiest topics; rates are made of two of them. */
export interface Counters {
  published_messages?: number;
  published_bytes?: number;
  publish_requests?: number;
  delivered_messages?: number;
  acked_messages?: number;
  calls?: number;
  streams?: number;
  outstanding_messages?: number;
  cpu_seconds?: number;
  memory_bytes?: number;
  topics: Record<string, number>;
}

export interface Obstacle {
  cause: string;
  text: string;
  advice: string;
}

export interface Receipt {
  messageId: string;
  publishTime?: string;
  chain?: number;
  log?: Int64;
  position?: Int64;
  entryBytes?: Int64;
  suffices?: boolean;
  needed?: number;
  copies?: { disk: string; state?: string; reason?: string }[];
}
