// All settings of topics and subscriptions, by the names that the command line has for them. Two methods change them:
// Google's own, and options beside it.

import { call, type Fields, type Json } from "./client";
import { shell } from "../lib/copies";
import { idOf, projectOf, protoSpanOf, spanOf } from "../lib/format";
import { pairs, SUBSCRIPTION_SETTINGS, TOPIC_SETTINGS } from "./settingTables";

export interface TopicOptions {
  topic: string;
  queue?: boolean;
}

/** `span`: a time such as 10m; `list`: separated by commas; `pairs`: name=value; `topic`, `schema`: a name, of this project where it is an id alone. */
export type SettingKind = "span" | "count" | "flag" | "text" | "topic" | "schema" | "list" | "pairs" | "json" | "choice" | "presence";

export interface Setting {
  key: string;
  label: string;
  /** Of the command line; `off`: of a flag, where it is no --no-…; `clear`: where it is taken away. */
  option: string;
  off?: string;
  clear?: string;
  kind: SettingKind;
  /** Where it is in the resource; of `options`, in those. */
  path: string;
  options?: boolean;
  group: string;
  hint?: string;
  choices?: readonly string[];
  /** What it is where nothing is set. */
  none?: string;
  /** Without it the policy that it belongs to goes, too. */
  whole?: boolean;
  /** Set when the resource is created, and never changed. */
  fixed?: boolean;
  /** Among the first that a dialog asks for. */
  usual?: boolean;
  never?: boolean;
}

export type Value = string | boolean;
export type Changed = Record<string, Value>;

/** Policies that mean nothing without a field. */
const PRUNED = new Set(["retryPolicy", "oidcToken", "messageStoragePolicy", "deadLetterPolicy", "schemaSettings"]);

const isObject = (value: Json | undefined): value is Fields => typeof value === "object" && value !== null && !Array.isArray(value);

function found(from: Fields, path: string): Json | undefined {
  return path.split(".").reduce<Json | undefined>((at, part) => (isObject(at) ? at[part] : undefined), from);
}

/** What is in the field of a form. */
export function shownOf(setting: Setting, resource: Fields, options: Fields): Value {
  const value = found(setting.options ? options : resource, setting.path);
  if (setting.kind === "flag") return value === true;
  if (setting.kind === "presence") return value !== undefined;
  if (setting.never && value === undefined) return found(resource, setting.path.split(".")[0] ?? "") === undefined ? "" : "never";
  if (value === undefined) return setting.none ?? "";
  if (setting.kind === "span") return spanOf(value as string);
  if (setting.kind === "list") return (value as string[]).join(", ");
  if (setting.kind === "pairs") return Object.entries(value as Record<string, string>).map(([name, one]) => `${name}=${one}`).join(", ");
  return setting.kind === "json" ? JSON.stringify(value, null, 2) : String(value);
}

/** What is wrong with what is in a field; null: nothing that is known here. */
export function wrongIn(setting: Setting, value: Value): string | null {
  const text = String(value).trim();
  if (setting.kind === "span" && !(setting.never && text === "never") && protoSpanOf(text) === null) return `Write a duration such as 30s, 10m, 12h or 7d${setting.never ? ", or never" : ""}.`;
  if (setting.kind === "pairs" && text !== "" && pairs(text) === null) return "Write name=value, separated by commas.";
  if (setting.kind === "json" && text !== "" && jsonIn(text) === undefined) return "Write JSON.";
  return null;
}

function jsonIn(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

/** projects/P/topics/T of what may be a topic's id alone. */
export const topicNamed = (text: string, project: string): string => named(text, project, "topics");
const named = (text: string, project: string, kind: string): string => (text === "" || text.includes("/") ? text : `projects/${project}/${kind}/${text}`);

function valueOf(setting: Setting, value: Value, project: string): Json | undefined {
  if (typeof value === "boolean") return setting.kind === "presence" ? (value ? {} : undefined) : value;
  const text = value.trim();
  if (setting.kind === "span") return text === "" && !setting.options ? undefined : (protoSpanOf(text) ?? undefined);
  if (setting.kind === "topic") return text === "" && !setting.options ? undefined : topicNamed(text, project);
  if (text === "") return setting.options ? "" : undefined;
  if (setting.kind === "schema") return named(text, project, "schemas");
  if (setting.kind === "count") return Number(text);
  if (setting.kind === "list") return text.split(",").map((one) => one.trim());
  if (setting.kind === "pairs") return pairs(text);
  return setting.kind === "json" ? jsonIn(text) : text;
}

function put(into: Fields, setting: Setting, value: Json | undefined, text: string): void {
  const parts = setting.path.split(".");
  const top = parts[0] as string;
  if (setting.never) {
    if (text.trim() === "") delete into[top];
    else into[top] = text.trim() === "never" ? {} : { ttl: value };
    return;
  }
  if (value === undefined && setting.whole) {
    delete into[top];
    return;
  }
  const last = parts.pop() as string;
  let at = into;
  const way: [Fields, string][] = [];
  for (const part of parts) {
    way.push([at, part]);
    if (!isObject(at[part])) at[part] = {};
    at = at[part] as Fields;
  }
  if (value === undefined) delete at[last];
  else at[last] = value;
  for (const [holder, part] of way.reverse()) if (PRUNED.has(part) && Object.keys(holder[part] as Fields).length === 0) delete holder[part];
}

export interface Kind {
  /** topics or subscriptions: of the command line and of names. */
  plural: "topics" | "subscriptions";
  one: "topic" | "subscription";
  settings: readonly Setting[];
  create: string;
  update: string;
  options: string;
  updateOptions: string;
}

export const TOPIC: Kind = { plural: "topics", one: "topic", settings: TOPIC_SETTINGS, create: "Publisher.CreateTopic", update: "Publisher.UpdateTopic", options: "Admin.GetTopicOptions", updateOptions: "Admin.UpdateTopicOptions" };
export const SUBSCRIPTION: Kind = {
  plural: "subscriptions",
  one: "subscription",
  settings: SUBSCRIPTION_SETTINGS,
  create: "Subscriber.CreateSubscription",
  update: "Subscriber.UpdateSubscription",
  options: "Admin.GetSubscriptionOptions",
  updateOptions: "Admin.UpdateSubscriptionOptions",
};

interface Call {
  method: string;
  request: Fields;
}

const chosen = (kind: Kind, changed: Changed, options: boolean): Setting[] => kind.settings.filter((one) => changed[one.key] !== undefined && (one.options ?? false) === options);

/** The calls that make a change, in order: a dead-letter topic first, since options may ask for one. `resource`: as it is, or what a new one has beside its settings. */
export function callsOf(kind: Kind, resource: Fields, changed: Changed, create = false): Call[] {
  const name = String(resource["name"]);
  const project = projectOf(name);
  const calls: Call[] = [];
  const own = chosen(kind, changed, false);
  const next = structuredClone(resource);
  for (const one of own) put(next, one, valueOf(one, changed[one.key] as Value, project), String(changed[one.key]));
  const masks = [...new Set(own.map((one) => one.path.split(".")[0] as string))];
  if (create) calls.push({ method: kind.create, request: next });
  else if (masks.length > 0) calls.push({ method: kind.update, request: { [kind.one]: { name, ...Object.fromEntries(masks.filter((one) => next[one] !== undefined).map((one) => [one, next[one]])) }, updateMask: masks.join(",") } });
  const beside = chosen(kind, changed, true);
  if (beside.length > 0) {
    const options = Object.fromEntries(beside.map((one) => [one.path, valueOf(one, changed[one.key] as Value, project)]));
    calls.push({ method: kind.updateOptions, request: { options: { [kind.one]: name, ...options }, updateMask: beside.map((one) => one.path).join(",") } });
  }
  return calls;
}

export async function perform(calls: Call[]): Promise<void> {
  for (const { method, request } of calls) await call(method, request);
}

/** The command that does the same. */
export function commandOf(kind: Kind, name: string, verb: "create" | "update", changed: Changed, more = ""): string {
  const start = `syncpoint ${kind.plural} ${verb} ${shell(idOf(name) || "NAME")}${more} --project ${shell(projectOf(name))}`;
  const flags = kind.settings.filter((one) => changed[one.key] !== undefined).map((one) => flagOf(one, changed[one.key] as Value, verb));
  return [start, ...flags.filter((one) => one !== "")].join(" ");
}

function flagOf(setting: Setting, value: Value, verb: "create" | "update"): string {
  const { option, off = `--no-${setting.option.slice(2)}`, clear } = setting;
  if (typeof value === "boolean") return value ? option : verb === "create" || setting.fixed ? "" : off;
  const text = value.trim();
  if (setting.kind === "json") return text === "" ? (clear ?? "") : `${option} FILE`;
  if (setting.kind === "pairs") return text === "" ? "--clear-labels" : `${verb === "create" ? "--labels" : option} ${shell(text.replaceAll(" ", ""))}`;
  if (text === "") return clear ?? "";
  return `${option} ${shell(setting.kind === "list" ? text.replaceAll(" ", "") : text)}`;
}
