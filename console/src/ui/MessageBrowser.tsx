// Messages of a topic or a subscription, as they are stored: nothing is consumed, leased or counted by looking.

import { useInfiniteQuery } from "@tanstack/react-query";
import { useContext, useState } from "react";

import { AboutContext, pagesQuery, usePermissions } from "../api/queries";
import type { PeekedMessage, PeekResponse } from "../api/types";
import { bytes, count, idOf, projectOf, time, timeOf } from "../lib/format";
import { previewOf, sizeOf } from "../lib/payload";
import { shell } from "../lib/copies";
import type { MessageSearch } from "../router";
import { CopyAs } from "./CopyAs";
import { MessageView } from "./MessageView";
import { Table } from "./Table";
import { Card, Empty, Field, Loading, Problem } from "./parts";

const PAGE = 50;
export function MessageBrowser({ kind, name, topic, search, onSearch }: { kind: "topic" | "subscription"; name: string; topic?: string | undefined; search: MessageSearch; onSearch: (search: MessageSearch) => void }) {
  const permission = kind === "topic" ? "syncpoint.topics.read" : "syncpoint.subscriptions.read";
  const rights = usePermissions(name, [permission]);
  if (!rights.known) return <Loading />;
  if (!rights.has(permission))
    return (
      <Card title="Messages">
        <Empty>
          Viewing messages requires the permission {permission} on {name}, which for example roles/syncpoint.logReader includes.
        </Empty>
      </Card>
    );
  return <Browser key={JSON.stringify([name, search])} kind={kind} name={name} topic={topic} search={search} onSearch={onSearch} />;
}

function Browser({ kind, name, topic, search, onSearch }: { kind: "topic" | "subscription"; name: string; topic?: string | undefined; search: MessageSearch; onSearch: (search: MessageSearch) => void }) {
  const [draft, setDraft] = useState<MessageSearch>(search);
  const [open, setOpen] = useState<string | null>(null);
  const { identifies } = useContext(AboutContext);
  const [masked, setMasked] = useState(identifies);
  const [startTime] = useState(() => (search.since === undefined ? null : timeOf(search.since)));
  const bad = search.since !== undefined && startTime === null;
  const method = kind === "topic" ? "Admin.PeekTopic" : "Admin.PeekSubscription";
  const request: Record<string, string | number> = { [kind]: name, pageSize: PAGE };
  if (startTime !== null) request["startTime"] = startTime;
  if (search.key !== undefined) request["orderingKey"] = search.key;
  if (search.filter !== undefined) request["filter"] = search.filter;
  if (kind === "topic" && search.offset !== undefined) request["startOffset"] = search.offset;
  if (kind === "topic" && search.id !== undefined) request["messageId"] = search.id;
  const found = useInfiniteQuery({ ...pagesQuery<PeekResponse>(method, request), enabled: !bad });
  const messages = found.data?.pages.flatMap((page) => page.messages ?? []) ?? [];
  const unknown = [...new Set(found.data?.pages.flatMap((page) => page.unknown ?? []) ?? [])];
  const set = (field: keyof MessageSearch) => (event: { target: { value: string } }) => {
    const { [field]: _, ...rest } = draft;
    setDraft(event.target.value === "" ? rest : { ...rest, [field]: event.target.value });
  };
  const cli = [`syncpoint ${kind}s peek ${shell(idOf(name))} --project ${shell(projectOf(name))} --limit ${PAGE}`];
  if (search.since !== undefined) cli.push(`--since ${shell(search.since)}`);
  if (search.key !== undefined) cli.push(`--ordering-key ${shell(search.key)}`);
  if (search.filter !== undefined) cli.push(`--message-filter ${shell(search.filter)}`);
  if (search.offset !== undefined && kind === "topic") cli.push(`--offset ${shell(search.offset)}`);
  if (search.id !== undefined && kind === "topic") cli.push(`--message-id ${shell(search.id)}`);
  return (
    <Card
      title="Messages"
      note={kind === "topic" ? "as stored; viewing does not consume messages" : "unacknowledged, including outstanding; viewing does not consume messages"}
      flush
      actions={
        <>
          <button type="button" className="quiet" aria-pressed={masked} onClick={() => setMasked(!masked)}>
            {masked ? "Show payloads" : "Hide payloads"}
          </button>
          <CopyAs cli={cli.join(" ")} method={method} request={request} />
        </>
      }
    >
      <form
        className="filters"
        onSubmit={(event) => {
          event.preventDefault();
          if (JSON.stringify(draft) === JSON.stringify(search)) void found.refetch();
          else onSearch(draft);
        }}
      >
        <Field label="Published since">{(id) => <input id={id} size={14} placeholder="-10m" value={draft.since ?? ""} onChange={set("since")} />}</Field>
        {kind === "topic" && <Field label="From offset">{(id) => <input id={id} size={8} inputMode="numeric" value={draft.offset ?? ""} onChange={set("offset")} />}</Field>}
        <Field label="Ordering key">{(id) => <input id={id} size={12} value={draft.key ?? ""} onChange={set("key")} />}</Field>
        <Field label="Attributes">{(id) => <input id={id} size={28} placeholder={'attributes.region = "eu"'} value={draft.filter ?? ""} onChange={set("filter")} />}</Field>
        {kind === "topic" && <Field label="Message ID">{(id) => <input id={id} size={18} value={draft.id ?? ""} onChange={set("id")} />}</Field>}
        <button type="submit" className="primary">
          Search
        </button>
      </form>
      {bad && <Problem error={`"${search.since ?? ""}" is not a time. Write -10m, -2h, or 2026-11-21T03:00:00Z.`} what="Published since" />}
      {found.isError && <Problem error={found.error} />}
      {unknown.map((one) => (
        <p key={one} className="note warn">
          Not shown: {one}
        </p>
      ))}
      {found.isPending && !bad && !found.isError && <Loading />}
      {messages.length > 0 && <MessageTable messages={messages} masked={masked} open={open} onOpen={setOpen} topic={topic} />}
      {found.isSuccess && messages.length === 0 && !found.hasNextPage && <Empty>No matching messages are stored.</Empty>}
      {found.hasNextPage && (
        <p className="more">
          <button type="button" disabled={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
            {found.isFetchingNextPage ? "Loading …" : `More after ${count(messages.length)}`}
          </button>
        </p>
      )}
    </Card>
  );
}

function MessageTable({ messages, masked, open, onOpen, topic }: { messages: PeekedMessage[]; masked: boolean; open: string | null; onOpen: (id: string | null) => void; topic?: string | undefined }) {
  const keyOf = (one: PeekedMessage): string => `${one.source ?? ""}/${one.offset ?? "0"}/${one.message.messageId ?? ""}`;
  return (
    <Table
      label="Messages"
      rows={messages}
      rowKey={keyOf}
      below={(one) =>
        open === keyOf(one) &&
        (masked ? (
          <Empty>Payloads are hidden. Choose Show payloads above.</Empty>
        ) : (
          <MessageView
            message={one.message}
            topic={topic}
            more={[
              ["Source", `${one.source ?? "0"}${one.chain === undefined ? "" : `, chain ${one.chain}`}`],
              ["Offset", count(one.offset)],
            ]}
          />
        ))
      }
      columns={[
        {
          title: "Published",
          cell: (one) => (
            <button type="button" className="link" aria-expanded={open === keyOf(one)} onClick={() => onOpen(open === keyOf(one) ? null : keyOf(one))}>
              {time(one.message.publishTime)}
            </button>
          ),
        },
        { title: "Offset", right: true, cell: (one) => count(one.offset) },
        { title: "Key", style: "cut", cell: (one) => one.message.orderingKey },
        { title: "Attributes", style: "cut muted", cell: (one) => (masked ? "" : Object.entries(one.message.attributes ?? {}).map(([name, value]) => `${name}=${value}`).join(", ")) },
        { title: "Data", style: "cut mono", cell: (one) => (masked ? "••••••" : previewOf(one.message.data)) },
        { title: "Size", right: true, cell: (one) => bytes(sizeOf(one.message.data)) },
      ]}
    />
  );
}
