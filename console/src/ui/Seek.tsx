// Seeking a subscription to a time or a snapshot, with what it would mean before it is done.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";

import { call, type Fields } from "../api/client";
import { callQuery } from "../api/queries";
import type { PeekedMessage, PeekResponse, Subscription, SubscriptionState, Topic } from "../api/types";
import { shell } from "../lib/copies";
import { idOf, num, plural, projectOf, time } from "../lib/format";
import { CopyAs } from "./CopyAs";
import { Card, Confirm, Empty, Field, Problem } from "./parts";

interface Snapshot {
  name: string;
  topic: string;
  expireTime?: string;
  labels?: Record<string, string>;
}

export function Seek({ name, config }: { name: string; config: Subscription }) {
  return (
    <>
      <ToTime name={name} config={config} />
      <Snapshots name={name} topic={config.topic} />
    </>
  );
}

/** Of a field `datetime-local`, which has no zone: that of the reader. */
const asIso = (local: string): string | null => {
  const at = new Date(local);
  return local === "" || Number.isNaN(at.getTime()) ? null : at.toISOString();
};

const asLocal = (at: Date): string => new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);

const AGO: [string, number][] = [
  ["10 min ago", 600],
  ["1 h ago", 3600],
  ["1 day ago", 86_400],
  ["Now", 0],
];

function ToTime({ name, config }: { name: string; config: Subscription }) {
  const [local, setLocal] = useState("");
  const [asking, setAsking] = useState(false);
  const iso = asIso(local);
  const request: Fields = { subscription: name, time: iso ?? "" };
  return (
    <Card title="Seek to a time" note="what was published before it counts as acknowledged, what came after it as not">
      <form
        className="filters bare"
        onSubmit={(event) => {
          event.preventDefault();
          setAsking(true);
        }}
      >
        <Field label="Time (your zone)">{(id) => <input id={id} type="datetime-local" step="1" value={local} onChange={(event) => setLocal(event.target.value)} />}</Field>
        {AGO.map(([title, seconds]) => (
          <button key={title} type="button" onClick={() => setLocal(asLocal(new Date(Date.now() - seconds * 1000)))}>
            {title}
          </button>
        ))}
        <button type="submit" className="primary" disabled={iso === null}>
          Seek…
        </button>
      </form>
      {asking && iso !== null && (
        <AskSeek title={`Seek ${idOf(name)} to ${time(iso)}?`} preview={<ComesBack name={name} config={config} since={iso} />} request={request} cli={`syncpoint subscriptions seek ${shell(idOf(name))} --project ${shell(projectOf(name))} --time ${iso}`} onClose={() => setAsking(false)} />
      )}
    </Card>
  );
}

function AskSeek({ title, preview, request, cli, onClose }: { title: string; preview: ReactNode; request: Fields; cli: string; onClose: () => void }) {
  const queries = useQueryClient();
  return (
    <Confirm
      title={title}
      text={preview}
      action="Seek"
      dangerous
      onClose={onClose}
      run={async () => {
        await call("Subscriber.Seek", request);
        await queries.invalidateQueries({ queryKey: ["pages"] });
      }}
    >
      <CopyAs cli={cli} method="Subscriber.Seek" request={request} />
    </Confirm>
  );
}

const COUNTED_PAGES = 10;

/** How many messages of the topic that fit the filter were published since a time and are stored, as far as is counted. */
async function countSince(config: Subscription, since: string, signal: AbortSignal): Promise<{ messages: number; more: boolean; first: PeekedMessage[] }> {
  let messages = 0;
  let pageToken = "";
  const first: PeekedMessage[] = [];
  for (let page = 0; page < COUNTED_PAGES; page += 1) {
    const found = await call<PeekResponse>(
      "Admin.PeekTopic",
      { topic: config.topic, startTime: since, filter: config.filter, pageSize: 1000, pageToken, fields: "nextPageToken,messages(offset,message(messageId,publishTime))" },
      signal,
    );
    messages += (found.messages ?? []).length;
    if (first.length === 0) first.push(...(found.messages ?? []).slice(0, 3));
    pageToken = found.nextPageToken ?? "";
    if (pageToken === "") return { messages, more: false, first };
  }
  return { messages, more: true, first };
}

/** What a seek to a time would mean: what waits now, and what would wait afterwards. */
function ComesBack({ name, config, since }: { name: string; config: Subscription; since: string }) {
  const deleted = config.topic.startsWith("_");
  const state = useQuery(callQuery<SubscriptionState>("Admin.GetSubscriptionState", { subscription: name, rangesMax: 1 }));
  const topic = useQuery({ ...callQuery<Topic>("Publisher.GetTopic", { topic: config.topic }), enabled: !deleted });
  const kept = config.retainAckedMessages === true || topic.data?.messageRetentionDuration !== undefined;
  const counted = useQuery({ queryKey: ["since", name, since], queryFn: ({ signal }) => countSince(config, since, signal), enabled: !deleted && kept, gcTime: 0 });
  if (state.isError) return <Problem error={state.error} />;
  if (counted.isError) return <Problem error={counted.error} what="What comes back cannot be counted" />;
  if (state.isPending || (topic.isPending && !deleted) || (kept && counted.isPending && !deleted)) return <p role="status">Counting …</p>;
  return (
    <ul className="preview" role="status">
      <li>
        Now {plural(num(state.data.backlogMessages), "message")} {num(state.data.backlogMessages) === 1 ? "waits" : "wait"}.
      </li>
      {counted.data !== undefined ? (
        <li>
          Afterwards{" "}
          <b>
            {counted.data.more ? "more than " : ""}
            {plural(counted.data.messages, "message")}
          </b>{" "}
          wait: those that were published since then, fit its filter, and are kept.
          {counted.data.first[0] !== undefined && ` The first of them is of ${time(counted.data.first[0].message.publishTime)}.`}
        </li>
      ) : (
        <li>Acknowledged messages are kept neither by the subscription nor by its topic: none of them comes back.</li>
      )}
      <li>What was published before that time counts as acknowledged, also where it waits now.</li>
    </ul>
  );
}

function Snapshots({ name, topic }: { name: string; topic: string }) {
  const [id, setId] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [seeking, setSeeking] = useState<string | null>(null);
  const project = projectOf(name);
  const deleted = topic.startsWith("_");
  const names = useQuery({ ...callQuery<{ snapshots?: string[] }>("Publisher.ListTopicSnapshots", { topic, pageSize: 100 }), enabled: !deleted });
  const request: Fields = { name: `projects/${project}/snapshots/${id}`, subscription: name };
  return (
    <Card title="Snapshots of its topic" note="what a subscription had not acknowledged at one moment, kept to seek back to">
      <form
        className="filters bare"
        onSubmit={(event) => {
          event.preventDefault();
          setError(null);
          call<Snapshot>("Subscriber.CreateSnapshot", request).then(
            () => {
              setId("");
              void names.refetch();
            },
            (failed: unknown) => setError(failed),
          );
        }}
      >
        <Field label="New snapshot of this subscription">{(field) => <input id={field} required placeholder="before-deploy" value={id} onChange={(event) => setId(event.target.value)} />}</Field>
        <button type="submit">Create</button>
        <CopyAs cli={`syncpoint snapshots create ${shell(id || "NAME")} --subscription ${shell(idOf(name))} --project ${shell(project)}`} method="Subscriber.CreateSnapshot" request={request} />
      </form>
      {error !== null && <Problem error={error} />}
      {names.isError && <Problem error={names.error} />}
      {(names.data?.snapshots ?? []).length === 0 && <Empty>{deleted ? "Its topic is deleted." : "There are none."}</Empty>}
      <ul className="plain">
        {(names.data?.snapshots ?? []).map((one) => (
          <li key={one}>
            <span>{idOf(one)}</span>
            <button type="button" onClick={() => setSeeking(one)}>
              Seek to it…
            </button>
          </li>
        ))}
      </ul>
      {seeking !== null && (
        <AskSeek title={`Seek ${idOf(name)} to the snapshot ${idOf(seeking)}?`} preview={<p>What had not been acknowledged when the snapshot was made, and what was published since, waits again. How many that are cannot be said beforehand.</p>} request={{ subscription: name, snapshot: seeking }} cli={`syncpoint subscriptions seek ${shell(idOf(name))} --project ${shell(project)} --snapshot ${shell(idOf(seeking))}`} onClose={() => setSeeking(null)} />
      )}
    </Card>
  );
}
