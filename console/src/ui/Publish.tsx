// A test message, published.

import { useMutation } from "@tanstack/react-query";
import { useState } from "react";

import { call, type Fields } from "../api/client";
import { shell } from "../lib/copies";
import { idOf, projectOf } from "../lib/format";
import { given } from "../lib/pairs";
import { base64Of } from "../lib/payload";
import { CopyAs } from "./CopyAs";
import { Pairs } from "./Pairs";
import { Card, CopyButton, Field, Problem } from "./parts";

export function Publish({ topic }: { topic: string }) {
  const [data, setData] = useState("");
  const [key, setKey] = useState("");
  const [attributes, setAttributes] = useState<[string, string][]>([]);
  const named = given(attributes);
  const message: Fields = { data: base64Of(data), ...(key === "" ? {} : { orderingKey: key }), ...(named.length === 0 ? {} : { attributes: Object.fromEntries(named) }) };
  const request: Fields = { topic, messages: [message] };
  const sent = useMutation({ mutationFn: () => call<{ messageIds?: string[] }>("Publisher.Publish", request) });
  const cli = [`syncpoint topics publish ${shell(idOf(topic))} --project ${shell(projectOf(topic))} --message ${shell(data)}`];
  if (key !== "") cli.push(`--ordering-key ${shell(key)}`);
  for (const [name, value] of named) cli.push(`--attribute ${shell(`${name}=${value}`)}`);
  return (
    <Card title="Publish a message" note="all subscriptions of this topic receive it">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          sent.mutate();
        }}
      >
        <Field label="Data">{(id) => <textarea id={id} rows={7} spellCheck={false} className="mono" value={data} onChange={(event) => setData(event.target.value)} />}</Field>
        <Pairs legend="Attributes" of="attribute" pairs={attributes} onChange={setAttributes} />
        <Field label="Ordering key">{(id) => <input id={id} value={key} onChange={(event) => setKey(event.target.value)} />}</Field>
        {sent.isError && <Problem error={sent.error} />}
        {sent.isSuccess && (
          <p className="note good" role="status">
            Published as message {sent.data.messageIds?.[0]} <CopyButton text={sent.data.messageIds?.[0] ?? ""} />
          </p>
        )}
        <footer className="form-foot">
          <button type="submit" className="primary" disabled={sent.isPending || (data === "" && named.length === 0)}>
            Publish
          </button>
          <CopyAs cli={cli.join(" ")} method="Publisher.Publish" request={request} />
        </footer>
      </form>
    </Card>
  );
}
