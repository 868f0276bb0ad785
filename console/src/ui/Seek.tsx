// Seeking a subscription to a time or a snapshot, with what it would mean before it is done.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { call, type Fields, serves } from "../api/client";
import { callQuery } from "../api/queries";
import type { Subscription } from "../api/types";
import { shell } from "../lib/copies";
import { count, idOf, num, plural, projectOf, time } from "../lib/format";
import { CopyAs } from "./CopyAs";
import { Card, Confirm, Empty, Field, Problem } from "./parts";

interface Snapshot {
  name: string;
  topic: string;
  expireTime?: string;
  labels?: Record<string, string>;
}

interface Preview {
  backlogMessages?: string;
  messagesAfter?: string;
  returning?: string;
  skipped?: string;
  unknown?: string[];
}

export function Seek({ name, config }: { name: string; config: Subscription }) {
  return (
    <>
      <ToTime name={name} />
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

function ToTime({ name }: { name: string }) {
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
        <AskSeek title={`Seek ${idOf(name)} to ${time(iso)}?`} request={request} cli={`syncpoint subscriptions seek ${shell(idOf(name))} --project ${shell(projectOf(name))} --time ${iso}`} onClose={() => setAsking(false)} />
      )}
    </Card>
  );
}

function AskSeek({ title, request, cli, onClose }: { title: string; request: Fields; cli: string; onClose: () => void }) {
  const queries = useQueryClient();
  return (
    <Confirm
      title={title}
      text={<PreviewOf request={request} />}
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

function PreviewOf({ request }: { request: Fields }) {
  const known = serves("Admin.PreviewSeek");
  const found = useQuery({ queryKey: ["preview", request], queryFn: () => call<Preview>("Admin.PreviewSeek", request), enabled: known, gcTime: 0, staleTime: 0 });
  if (!known) return <p>This server cannot say beforehand how many messages come back.</p>;
  if (found.isError) return <Problem error={found.error} />;
  if (found.isPending) return <p>Counting …</p>;
  const { backlogMessages, messagesAfter, returning, skipped, unknown = [] } = found.data;
  return (
    <>
      <ul className="preview">
        <li>
          <b>{count(returning)}</b> that {num(returning) === 1 ? "is" : "are"} acknowledged {num(returning) === 1 ? "comes" : "come"} back
        </li>
        <li>
          <b>{count(skipped)}</b> that {num(skipped) === 1 ? "waits is" : "wait are"} skipped
        </li>
        <li>
          {plural(num(backlogMessages), "message")} not acknowledged now, <b>{count(messagesAfter)}</b> afterwards
        </li>
      </ul>
      {unknown.map((one) => (
        <p key={one} className="note warn">
          Not counted: {one}
        </p>
      ))}
    </>
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
        <AskSeek title={`Seek ${idOf(name)} to the snapshot ${idOf(seeking)}?`} request={{ subscription: name, snapshot: seeking }} cli={`syncpoint subscriptions seek ${shell(idOf(name))} --project ${shell(project)} --snapshot ${shell(idOf(seeking))}`} onClose={() => setSeeking(null)} />
      )}
    </Card>
  );
}
