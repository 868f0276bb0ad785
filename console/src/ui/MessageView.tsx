// One message, whole: payload in the forms it can be read in, attributes, where it is.

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { send } from "../api/client";
import { callQuery } from "../api/queries";
import type { PubsubMessage, Receipt } from "../api/types";
import { bytes, idOf, time } from "../lib/format";
import { bytesOf, hexOf, jsonOf, sizeOf, textOf } from "../lib/payload";
import { Badge, CopyButton, Facts, Loading, Problem, Tabs } from "./parts";

type Form = "schema" | "json" | "text" | "hex";

const SCHEMA = "googclient_schemaname";
const REVISION = "googclient_schemarevisionid";
const ENCODING = "googclient_schemaencoding";

export function MessageView({ message, more = [], topic }: { message: PubsubMessage; more?: [string, React.ReactNode][]; topic?: string | undefined }) {
  const attributes = Object.entries(message.attributes ?? {});
  return (
    <div className="message">
      <Payload message={message} />
      <div>
        <Facts
          rows={[
            ["Message ID", <span key="id">{message.messageId} <CopyButton text={message.messageId ?? ""} /></span>],
            ["Published", time(message.publishTime)],
            ["Ordering key", message.orderingKey ?? <span className="muted">none</span>],
            ["Size", bytes(sizeOf(message.data))],
            ...more,
          ]}
        />
        {attributes.length > 0 && (
          <table className="attributes">
            <caption>Attributes</caption>
            <tbody>
              {attributes.map(([key, value]) => (
                <tr key={key}>
                  <th scope="row">{key}</th>
                  <td>{value}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        {topic !== undefined && message.messageId !== undefined && <ReceiptView topic={topic} messageId={message.messageId} />}
      </div>
    </div>
  );
}

function Payload({ message }: { message: PubsubMessage }) {
  const data = bytesOf(message.data);
  const text = textOf(data);
  const json = text === null ? null : jsonOf(text);
  const schema = message.attributes?.[SCHEMA];
  const revision = message.attributes?.[REVISION];
  const binary = schema !== undefined && revision !== undefined && message.attributes?.[ENCODING] === "BINARY";
  const forms: [Form, string][] = [];
  if (binary) forms.push(["schema", `Decoded (${idOf(schema)})`]);
  if (json !== null) forms.push(["json", "JSON"]);
  if (text !== null) forms.push(["text", "Text"]);
  forms.push(["hex", "Bytes"]);
  const [chosen, setChosen] = useState<Form | null>(null);
  const form = forms.find(([key]) => key === chosen)?.[0] ?? (forms[0] as [Form, string])[0];
  if (data.length === 0) return <p className="empty">No data; this message has attributes only.</p>;
  const shown = form === "json" ? json : form === "text" ? text : hexOf(data);
  return (
    <div className="payload">
      <Tabs tabs={forms} current={form} onChange={setChosen} />
      {form === "schema" && binary ? (
        <Decoded schema={schema} revision={revision} data={message.data ?? ""} />
      ) : (
        <pre className="code" tabIndex={0} aria-label="Payload">
          {shown}
        </pre>
      )}
      <CopyButton text={shown ?? ""} label="Copy payload" />
    </div>
  );
}

function Decoded({ schema, revision, data }: { schema: string; revision: string; data: string }) {
  const found = useQuery({
    queryKey: ["decoded", schema, revision, data],
    queryFn: () => send<{ payloads: { json?: string; error?: string }[] }>({ verb: "POST", path: "/console/api/decode", body: { schema, revision, payloads: [data] } }),
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (found.isPending) return <Loading />;
  if (found.isError) return <Problem error={found.error} />;
  const [one] = found.data.payloads;
  return (
    <pre className="code" tabIndex={0} aria-label="Payload">
      {one?.json ?? one?.error}
    </pre>
  );
}

function ReceiptView({ topic, messageId }: { topic: string; messageId: string }) {
  const [asked, setAsked] = useState(false);
  const found = useQuery({ ...callQuery<Receipt>("Admin.GetReceipt", { topic, messageId }), enabled: asked, staleTime: 0 });
  if (!asked)
    return (
      <button type="button" onClick={() => setAsked(true)}>
        Check disk copies
      </button>
    );
  if (found.isPending) return <Loading what="Reading every copy" />;
  if (found.isError) return <Problem error={found.error} />;
  return (
    <table className="attributes">
      <caption>
        {found.data.suffices ? <Badge tone="good">safe</Badge> : <Badge tone="warn">not on enough disks</Badge>} Copies, each read and verified just now
      </caption>
      <tbody>
        {(found.data.copies ?? []).map((one) => (
          <tr key={one.disk}>
            <th scope="row">{one.disk}</th>
            <td>
              <Badge tone={one.state === "HELD" ? "good" : one.state === "DAMAGED" ? "bad" : "warn"}>{(one.state ?? "unknown").toLowerCase()}</Badge> {one.reason}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
