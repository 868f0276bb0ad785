// A test message, published.

import { useMutation } from "@tanstack/react-query";
import { useState } from "react";

import { call, type Fields } from "../api/client";
import { shell } from "../lib/copies";
import { idOf, projectOf } from "../lib/format";
import { base64Of } from "../lib/payload";
import { CopyAs } from "./CopyAs";
import { Card, CopyButton, Field, Problem } from "./parts";

export function Publish({ topic }: { topic: string }) {
  const [data, setData] = useState("");
  const [key, setKey] = useState("");
  const [attributes, setAttributes] = useState<[string, string][]>([["", ""]]);
  const given = attributes.filter(([name]) => name !== "");
  const message: Fields = { data: base64Of(data), ...(key === "" ? {} : { orderingKey: key }), ...(given.length === 0 ? {} : { attributes: Object.fromEntries(given) }) };
  const request: Fields = { topic, messages: [message] };
  const sent = useMutation({ mutationFn: () => call<{ messageIds?: string[] }>("Publisher.Publish", request) });
  const cli = [`syncpoint topics publish ${shell(idOf(topic))} --project ${shell(projectOf(topic))} --message ${shell(data)}`];
  if (key !== "") cli.push(`--ordering-key ${shell(key)}`);
  for (const [name, value] of given) cli.push(`--attribute ${shell(`${name}=${value}`)}`);
  const change = (index: number, pair: [string, string]) => {
    const next = attributes.map((one, at) => (at === index ? pair : one));
    if (next.at(-1)?.[0] !== "") next.push(["", ""]);
    setAttributes(next);
  };
  return (
    <Card title="Publish a message" note="all subscriptions of the topic get it">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          sent.mutate();
        }}
      >
        <Field label="Data">{(id) => <textarea id={id} rows={7} spellCheck={false} className="mono" value={data} onChange={(event) => setData(event.target.value)} />}</Field>
        <fieldset>
          <legend>Attributes</legend>
          {attributes.map(([name, value], index) => (
            <div className="pair" key={index}>
              <input aria-label={`Name of attribute ${index + 1}`} placeholder="name" value={name} onChange={(event) => change(index, [event.target.value, value])} />
              <input aria-label={`Value of attribute ${index + 1}`} placeholder="value" value={value} onChange={(event) => change(index, [name, event.target.value])} />
            </div>
          ))}
        </fieldset>
        <Field label="Ordering key">{(id) => <input id={id} value={key} onChange={(event) => setKey(event.target.value)} />}</Field>
        {sent.isError && <Problem error={sent.error} />}
        {sent.isSuccess && (
          <p className="note good" role="status">
            Stored as message {sent.data.messageIds?.[0]} <CopyButton text={sent.data.messageIds?.[0] ?? ""} />
          </p>
        )}
        <footer className="form-foot">
          <button type="submit" className="primary" disabled={sent.isPending || (data === "" && given.length === 0)}>
            Publish
          </button>
          <CopyAs cli={cli.join(" ")} method="Publisher.Publish" request={request} />
        </footer>
      </form>
    </Card>
  );
}
