// Settings of topics and subscriptions that are changed by two methods each: Google's own, and options beside it.

import { call, type Fields } from "./client";
import type { Subscription } from "./types";

export interface TopicOptions {
  topic: string;
  durabilityClass?: string;
  defaultTtl?: string;
  duplicateDetectionWindow?: string;
  queue?: boolean;
  sendSuspended?: boolean;
}

export interface SubscriptionOptions {
  subscription: string;
  earlyDelivery?: boolean;
  ttl?: string;
  deadLetterExpired?: boolean;
  deadLetterRuleErrors?: boolean;
  receiveSuspended?: boolean;
  forwardTo?: string;
}

type Given = Record<string, string | boolean>;

/** projects/P/topics/T of what may be a topic's id alone. */
export const topicNamed = (text: string, project: string): string => (text === "" || text.includes("/") ? text : `projects/${project}/topics/${text}`);

export function topicOptionsRequest(topic: string, changed: Given): Fields {
  return { options: { topic, ...changed }, updateMask: Object.keys(changed).join(",") };
}

const OWN = ["ackDeadlineSeconds", "deadLetterTopic", "maxDeliveryAttempts", "messageRetentionDuration"];

/** What of a change goes into UpdateSubscription; null: nothing. */
export function subscriptionRequest(config: Subscription, project: string, changed: Given): Fields | null {
  const subscription: Fields = { name: config.name };
  const mask: string[] = [];
  for (const key of ["ackDeadlineSeconds", "messageRetentionDuration"]) {
    if (changed[key] === undefined) continue;
    subscription[key] = key === "ackDeadlineSeconds" ? Number(changed[key]) : changed[key];
    mask.push(key);
  }
  if (changed["deadLetterTopic"] !== undefined || changed["maxDeliveryAttempts"] !== undefined) {
    const deadLetterTopic = topicNamed(String(changed["deadLetterTopic"] ?? config.deadLetterPolicy?.deadLetterTopic ?? ""), project);
    const attempts = String(changed["maxDeliveryAttempts"] ?? config.deadLetterPolicy?.maxDeliveryAttempts ?? "");
    if (deadLetterTopic !== "" || attempts !== "") subscription["deadLetterPolicy"] = { deadLetterTopic, ...(attempts === "" ? {} : { maxDeliveryAttempts: Number(attempts) }) };
    if (deadLetterTopic === "" && changed["deadLetterTopic"] !== undefined) delete subscription["deadLetterPolicy"];
    mask.push("deadLetterPolicy");
  }
  return mask.length === 0 ? null : { subscription, updateMask: mask.join(",") };
}

/** What of it goes into UpdateSubscriptionOptions; null: nothing. */
export function subscriptionOptionsRequest(subscription: string, project: string, changed: Given): Fields | null {
  const options = Object.fromEntries(Object.entries(changed).filter(([key]) => !OWN.includes(key)));
  if (options["forwardTo"] !== undefined) options["forwardTo"] = topicNamed(String(options["forwardTo"]), project);
  const mask = Object.keys(options).join(",");
  return mask === "" ? null : { options: { subscription, ...options }, updateMask: mask };
}

/** A dead-letter topic first: options may ask for one. */
export async function saveSubscription(config: Subscription, project: string, changed: Given): Promise<void> {
  const own = subscriptionRequest(config, project, changed);
  if (own !== null) await call("Subscriber.UpdateSubscription", own);
  const options = subscriptionOptionsRequest(config.name, project, changed);
  if (options !== null) await call("Admin.UpdateSubscriptionOptions", options);
}
