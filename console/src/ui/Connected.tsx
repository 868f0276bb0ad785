// Who is connected to a subscription, and who publishes to a topic: each client as the process sees it that it calls.

import { useQuery } from "@tanstack/react-query";

import { callQuery } from "../api/queries";
import { bytes, count, num, plural, time } from "../lib/format";
import { Badge, Card, Empty, Loading, Problem } from "./parts";
import { Table, type TableColumn } from "./Table";

interface ConnectedClient {
  kind: string;
  process: string;
  peer?: string;
  principal?: string;
  userAgent?: string;
  apiClient?: string;
  clientId?: string;
  connectTime?: string;
  lastCallTime?: string;
  maxOutstandingMessages?: string;
  maxOutstandingBytes?: string;
  outstandingMessages?: string;
  outstandingBytes?: string;
}

interface Clients {
  clients?: ConnectedClient[];
  publishers?: ConnectedClient[];
  more?: string;
  unknown?: string[];
  addressesHidden?: boolean;
}

const EVERY_MS = 5_000;

/** To the second. */
const clock = (value: string | undefined): string => time(value).replace(/\.\d+$/, "");

const bound = (value: string | undefined, text: (value: string) => string): string => (num(value) === 0 ? "no limit" : text(String(value)));

/** `3 of 100`; what is not known is not none. */
const outOf = (out: string | undefined, most: string | undefined, text: (value: string) => string): string => `${out === undefined ? "unknown" : text(out)} of ${bound(most, text)}`;

const WHO: TableColumn<ConnectedClient>[] = [
  {
    title: "Client",
    cell: (one) => (
      <>
        {one.peer === undefined ? <span className="muted">hidden</span> : <span className="mono">{one.peer}</span>}
        {one.principal !== undefined && <p className="muted">{one.principal}</p>}
        {one.clientId !== undefined && <p className="muted">client {one.clientId}</p>}
      </>
    ),
  },
  {
    title: "Library",
    style: "wrap",
    cell: (one) => (
      <>
        {one.userAgent ?? <span className="muted">not reported</span>}
        {one.apiClient !== undefined && <p className="muted">{one.apiClient}</p>}
      </>
    ),
  },
  { title: "Process", cell: (one) => one.process },
  {
    title: "Connected since",
    cell: (one) => (
      <>
        {clock(one.connectTime)}
        {one.lastCallTime !== undefined && <p className="muted">last call {clock(one.lastCallTime)}</p>}
      </>
    ),
  },
];

export function SubscriptionClients({ name }: { name: string }) {
  return (
    <Connected
      title="Connected clients"
      note="open streams, and pulls in the last minute"
      method="Admin.ListSubscriptionClients"
      request={{ subscription: name }}
      nobody="No clients: no open streams, and no pulls in the last minute."
      columns={[
        { title: "Kind", cell: (one) => <Badge tone={one.kind === "STREAM" ? "good" : "calm"}>{one.kind.toLowerCase()}</Badge> },
        { title: "Outstanding", right: true, cell: (one) => one.kind === "STREAM" && outOf(one.outstandingMessages, one.maxOutstandingMessages, count) },
        { title: "Bytes", right: true, cell: (one) => one.kind === "STREAM" && outOf(one.outstandingBytes, one.maxOutstandingBytes, bytes) },
        ...WHO,
      ]}
    />
  );
}

export function TopicPublishers({ name }: { name: string }) {
  return (
    <Connected
      title="Publishers"
      note="clients that published in the last minute"
      method="Admin.ListTopicPublishers"
      request={{ topic: name }}
      nobody="No clients published in the last minute."
      columns={WHO}
    />
  );
}

function Connected({ title, note, method, request, nobody, columns }: { title: string; note: string; method: string; request: Record<string, string>; nobody: string; columns: TableColumn<ConnectedClient>[] }) {
  const found = useQuery(callQuery<Clients>(method, request, EVERY_MS));
  const rows = found.data?.clients ?? found.data?.publishers ?? [];
  const unknown = found.data?.unknown ?? [];
  return (
    <Card title={title} note={note} flush>
      {found.isPending && <Loading />}
      {found.isError && <Problem error={found.error} />}
      {unknown.map((one) => (
        <p key={one} className="note warn">
          Unknown: {one}
        </p>
      ))}
      {found.data?.addressesHidden === true && <p className="note">Viewing addresses and principals requires the permission syncpoint.server.get on the server.</p>}
      {found.isSuccess && rows.length === 0 && unknown.length === 0 && <Empty>{nobody}</Empty>}
      <Table label={title} rows={rows} rowKey={(one) => JSON.stringify([one.kind, one.process, one.peer, one.clientId, one.connectTime, rows.indexOf(one)])} columns={columns} />
      {num(found.data?.more) > 0 && <p className="note">{plural(num(found.data?.more), "more client is", "more clients are")} not shown.</p>}
    </Card>
  );
}
