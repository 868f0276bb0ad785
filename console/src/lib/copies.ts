// An action of the console as a command line, a program and a request: what "Copy as" gives.

import { requestOf, type Fields } from "../api/client";

export interface Copies {
  cli: string;
  python: string;
  curl: string;
}

export const shell = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

export const python = (text: string): string => JSON.stringify(text);

export function curlOf(method: string, request: Fields, identifies: boolean): string {
  const { verb, path, body } = requestOf(method, request);
  const lines = [`curl${verb === "GET" ? "" : ` -X ${verb}`} ${shell(location.origin + path)}`];
  if (identifies) lines.push(`-H "authorization: Bearer $TOKEN"`);
  if (body !== null) lines.push(`-H 'content-type: application/json'`, `-d ${shell(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

const PUBLISHER = "from google.cloud import pubsub_v1\n\npublisher = pubsub_v1.PublisherClient()\n";
const SUBSCRIBER = "from google.cloud import pubsub_v1\n\nsubscriber = pubsub_v1.SubscriberClient()\n";

/** A call of the official Python client; of what that has no words for, a request. */
export function pythonOf(method: string, request: Fields): string {
  const [service, name] = method.split(".") as [string, string];
  const snake = name.replace(/[A-Z]/g, (letter, at: number) => (at > 0 ? "_" : "") + letter.toLowerCase());
  if (service === "Publisher" && name === "Publish") {
    const [message] = (request["messages"] as Fields[] | undefined) ?? [];
    const given = [`b64decode(${python(String(message?.["data"] ?? ""))})`];
    if (message?.["orderingKey"]) given.push(`ordering_key=${python(String(message["orderingKey"]))}`);
    const attributes = Object.entries((message?.["attributes"] as Fields | undefined) ?? {});
    if (attributes.length > 0) given.push(`**{${attributes.map(([key, value]) => `${python(key)}: ${python(String(value))}`).join(", ")}}`);
    return `from base64 import b64decode\n\n${PUBLISHER}print(publisher.publish(${python(String(request["topic"]))}, ${given.join(", ")}).result())\n`;
  }
  if (service === "Publisher") return `${PUBLISHER}print(publisher.${snake}(request=${literal(request)}))\n`;
  if (service === "Subscriber") return `${SUBSCRIBER}print(subscriber.${snake}(request=${literal(request)}))\n`;
  const { verb, path, body } = requestOf(method, request);
  const given = body === null ? "" : `, json=${literal(body, false)}`;
  return `import requests\n\nanswer = requests.request(${python(verb)}, ${python(location.origin + path)}${given})\nanswer.raise_for_status()\nprint(answer.json())\n`;
}

/** A value as Python writes it; `fields`: names of fields as the client has them. */
function literal(value: unknown, fields = true): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((one) => literal(one, fields)).join(", ")}]`;
  const parts = Object.entries(value).filter(([, one]) => one !== undefined && one !== "");
  return `{${parts.map(([key, one]) => `${python(fields ? key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`) : key)}: ${literal(one, fields)}`).join(", ")}}`;
}
