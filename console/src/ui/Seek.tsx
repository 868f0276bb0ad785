// Seeking a subscription to a time or a snapshot, with what it would mean before it is done.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { call, type Fields } from "../api/client";
import { callQuery } from "../api/queries";
import type { SeekPreview, Subscription } from "../api/types";
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
  const request = { subscription: name, time: iso ?? "" };
  return (
    <Card title="Seek to a time" note="messages published before this time count as acknowledged, later ones as unacknowledged">
      <form
        className="filters bare"
        onSubmit={(event) => {
          event.preventDefault();
          setAsking(true);
        }}
      >
        <Field label="Time (your time zone)">{(id) => <input id={id} type="datetime-local" step="1" value={local} onChange={(event) => setLocal(event.target.value)} />}</Field>
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

function AskSeek({ title, request, cli, onClose }: { title: string; request: Record<string, string>; cli: string; onClose: () => void }) {
  const queries = useQueryClient();
  return (
    <Confirm
      title={title}
      text={<ComesBack request={request} />}
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

/** What a seek would mean, as of now: counted from what is acknowledged, not by reading messages. */
function ComesBack({ request }: { request: Record<string, string> }) {
  const preview = useQuery({ ...callQuery<SeekPreview>("Admin.PreviewSeek", request), staleTime: 0, gcTime: 0 });
  if (preview.isPending) return <p role="status">Counting …</p>;
  if (preview.isError) return <Problem error={preview.error} what="The effect cannot be counted" />;
  const unknown = preview.data.unknown ?? [];
  const least = unknown.length > 0 ? "at least " : "";
  const waiting = num(preview.data.backlogMessages);
  const back = num(preview.data.returningMessages);
  const gone = num(preview.data.acknowledgedMessages);
  return (
    <ul className="preview" role="status">
      <li>
        {least}
        <b>{plural(back, "acknowledged message")}</b> will be redelivered, if still retained.
      </li>
      <li>
        {least}
        <b>{plural(gone, "message")}</b> of {plural(waiting, "unacknowledged message")} will count as acknowledged.
      </li>
      <li>
        Backlog afterwards: {least}
        <b>{plural(waiting + back - gone, "message")}</b>, including those that a filter excludes.
      </li>
      {unknown.map((one) => (
        <li key={one}>Unknown: {one}</li>
      ))}
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
    <Card title="Snapshots of this topic" note="a subscription's acknowledgement state at one moment, to seek back to">
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
      {(names.data?.snapshots ?? []).length === 0 && <Empty>{deleted ? "The topic was deleted, so it has no snapshots." : "No snapshots yet."}</Empty>}
      <ul className="plain">
        {(names.data?.snapshots ?? []).map((one) => (
          <li key={one}>
            <span>{idOf(one)}</span>
            <button type="button" onClick={() => setSeeking(one)}>
              Seek to snapshot…
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
