// Dead letters that a subscription of a dead-letter topic has, and publishing them again where they came from.

import { infiniteQueryOptions, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Fragment, useState } from "react";

import { call, type Fields } from "../api/client";
import { callQuery, usePermissions } from "../api/queries";
import type { DeadLetter, Subscription } from "../api/types";
import { shell } from "../lib/copies";
import { count, idOf, plural, projectOf, time } from "../lib/format";
import { CopyAs } from "./CopyAs";
import { MessageView } from "./MessageView";
import { Card, Confirm, Empty, Field, Loading, Problem } from "./parts";

interface Letters {
  letters?: DeadLetter[];
  nextPageToken?: string;
  unknown?: string[];
}

interface Redriven {
  letters?: DeadLetter[];
  redriven?: number;
  failures?: string[];
  nextPageToken?: string;
  topic?: string;
  time?: string;
}

export function DeadLetters({ name, config }: { name: string; config: Subscription }) {
  const policy = config.deadLetterPolicy?.deadLetterTopic;
  return (
    <>
      {policy !== undefined && <Destination topic={policy} attempts={config.deadLetterPolicy?.maxDeliveryAttempts ?? 5} />}
      <Waiting name={name} />
    </>
  );
}

function Destination({ topic, attempts }: { topic: string; attempts: number }) {
  const found = useQuery(callQuery<{ subscriptions?: string[] }>("Publisher.ListTopicSubscriptions", { topic, pageSize: 20 }));
  return (
    <Card title="Dead-letter topic">
      <p>
        Messages not acknowledged after {attempts} delivery attempts are published to{" "}
        <Link to="/p/$project/topics/$topic" params={{ project: projectOf(topic), topic: idOf(topic) }}>
          {idOf(topic)}
        </Link>
        .{" "}
        {(found.data?.subscriptions ?? []).map((one) => (
          <Fragment key={one}>
            Find them in the subscription{" "}
            <Link to="/p/$project/subscriptions/$subscription" params={{ project: projectOf(one), subscription: idOf(one) }} search={{ tab: "letters" }}>
              {idOf(one)}
            </Link>
            .{" "}
          </Fragment>
        ))}
        {found.isSuccess && (found.data.subscriptions ?? []).length === 0 && "That topic has no subscription, so dead letters are lost unless it has a retention. Create a subscription to it."}
      </p>
    </Card>
  );
}

function Waiting({ name }: { name: string }) {
  const rights = usePermissions(name, ["syncpoint.subscriptions.read", "pubsub.subscriptions.consume"]);
  const allowed = rights.has("syncpoint.subscriptions.read");
  const [reason, setReason] = useState("");
  const [filter, setFilter] = useState("");
  const [selection, setSelection] = useState<Record<string, string>>({});
  const [open, setOpen] = useState<string | null>(null);
  const [redriving, setRedriving] = useState(false);
  const found = useInfiniteQuery({ ...lettersQuery(name, selection), enabled: allowed });
  const messages = found.data?.pages.flatMap((page) => page.letters ?? []) ?? [];
  const letters = messages.filter((one) => one.source !== undefined || one.reason !== undefined);
  if (!allowed)
    return (
      <Card title="Dead letters">
        <Empty>Viewing dead letters requires the permission syncpoint.subscriptions.read.</Empty>
      </Card>
    );
  return (
    <Card
      title="Dead letters in this subscription"
      note="viewing does not consume messages"
      flush
      actions={
        <>
          <CopyAs cli={`syncpoint dead-letters list --letters ${shell(idOf(name))} --project ${shell(projectOf(name))}${selection["reason"] === undefined ? "" : ` --reason ${shell(selection["reason"])}`}`} method="Admin.ListDeadLetters" request={{ selection: { subscription: name, ...selection } }} />
          {letters.length > 0 && rights.has("pubsub.subscriptions.consume") && (
            <button type="button" className="primary" onClick={() => setRedriving(true)}>
              Redrive…
            </button>
          )}
        </>
      }
    >
      <form
        className="filters"
        onSubmit={(event) => {
          event.preventDefault();
          setSelection({ ...(reason === "" ? {} : { reason }), ...(filter === "" ? {} : { filter }) });
        }}
      >
        <Field label="Reason">{(id) => <input id={id} size={22} value={reason} onChange={(event) => setReason(event.target.value)} />}</Field>
        <Field label="Rule filter (SQL)">{(id) => <input id={id} size={26} placeholder="region = 'eu'" value={filter} onChange={(event) => setFilter(event.target.value)} />}</Field>
        <button type="submit">Search</button>
      </form>
      {found.isPending && <Loading />}
      {found.isError && <Problem error={found.error} />}
      {found.isSuccess && letters.length === 0 && <Empty>{found.hasNextPage ? `No dead letters among the first ${plural(messages.length, "message")}.` : "No dead letters in this subscription."}</Empty>}
      {letters.length > 0 && (
        <div className="scroll" tabIndex={0} role="group" aria-label="Dead letters">
          <table className="messages">
            <thead>
              <tr>
                <th>Dead-lettered</th>
                <th>Subscription</th>
                <th>Reason</th>
                <th>Description</th>
                <th className="right">Attempts</th>
                <th className="right">Redrives</th>
              </tr>
            </thead>
            <tbody>
              {letters.map((one) => {
                const key = one.message.messageId ?? "";
                return (
                  <Fragment key={key}>
                    <tr className={open === key ? "chosen" : ""}>
                      <td>
                        <button type="button" className="link" aria-expanded={open === key} onClick={() => setOpen(open === key ? null : key)}>
                          {time(one.message.publishTime)}
                        </button>
                      </td>
                      <td>{idOf(one.source ?? "")}</td>
                      <td>{one.reason}</td>
                      <td className="cut muted">{one.description}</td>
                      <td className="right">{one.deliveryAttempts ?? 0}</td>
                      <td className="right">{one.redrives ?? 0}</td>
                    </tr>
                    {open === key && (
                      <tr className="opened">
                        <td colSpan={6}>
                          <MessageView
                            message={one.message}
                            more={[
                              ["Original message", `${one.originalMessageId ?? ""}, ${time(one.originalPublishTime)}`],
                              ["Dead-lettered by", one.source ?? ""],
                            ]}
                          />
                        </td>
                      </tr>
                    )}
                  </Fragment>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      {found.hasNextPage && (
        <p className="more">
          <button type="button" onClick={() => void found.fetchNextPage()}>
            More after {count(messages.length)}
          </button>
        </p>
      )}
      {redriving && <Redrive name={name} selection={selection} sources={[...new Set(letters.map((one) => one.source ?? ""))]} onClose={() => setRedriving(false)} onDone={() => void found.refetch()} />}
    </Card>
  );
}

const lettersQuery = (name: string, selection: Record<string, string>) =>
  infiniteQueryOptions({
    queryKey: ["letters", name, selection],
    queryFn: ({ pageParam, signal }) => call<Letters>("Admin.ListDeadLetters", { selection: { subscription: name, ...selection }, pageSize: 100, pageToken: pageParam }, signal),
    initialPageParam: "",
    getNextPageParam: (page: Letters) => (page.nextPageToken === undefined || page.nextPageToken === "" ? null : page.nextPageToken),
    gcTime: 0,
  });

/** First as a dry run, so that everybody sees what would go where; then for good, page by page. */
function Redrive({ name, selection, sources, onClose, onDone }: { name: string; selection: Record<string, string>; sources: string[]; onClose: () => void; onDone: () => void }) {
  const [source, setSource] = useState(sources.length === 1 ? (sources[0] ?? "") : "");
  const [topic, setTopic] = useState("");
  const [said, setSaid] = useState<string[]>([]);
  const [finished, setFinished] = useState(false);
  const chosen = { subscription: name, ...selection, ...(source === "" ? {} : { source }) };
  const request: Fields = { selection: chosen, ...(topic === "" ? {} : { topic }), pageSize: 100 };
  const ready = source !== "" || topic !== "";
  const dry = useQuery({ queryKey: ["redrive", request], queryFn: () => call<Redriven>("Admin.RedriveDeadLetters", { ...request, dryRun: true }), enabled: ready && !finished, gcTime: 0 });
  const run = async () => {
    let pageToken = "";
    let endTime: string | undefined;
    let redriven = 0;
    const failures: string[] = [];
    do {
      const page: Redriven = await call<Redriven>("Admin.RedriveDeadLetters", { ...request, selection: { ...chosen, ...(endTime === undefined ? {} : { endTime }) }, pageToken });
      redriven += page.redriven ?? 0;
      failures.push(...(page.failures ?? []));
      pageToken = page.nextPageToken ?? "";
      endTime ??= page.time;
    } while (pageToken !== "");
    onDone();
    setFinished(true);
    setSaid([`${plural(redriven, "dead letter")} published again.`, ...failures.slice(0, 20)]);
    if (failures.length > 0) throw new Error(`${plural(failures.length, "dead letter")} could not be published: ${failures[0] ?? ""}`);
  };
  const cli = [`syncpoint dead-letters redrive --letters ${shell(idOf(name))} --project ${shell(projectOf(name))}`];
  if (source !== "") cli.push(`--subscription ${shell(idOf(source))}`);
  if (topic !== "") cli.push(`--to-topic ${shell(topic)}`);
  if (selection["reason"] !== undefined) cli.push(`--reason ${shell(selection["reason"])}`);
  if (selection["filter"] !== undefined) cli.push(`--filter ${shell(selection["filter"])}`);
  const amount = dry.data?.letters?.length ?? 0;
  return (
    <Confirm
      title="Redrive dead letters"
      text="Publishes each dead letter to its original topic again, then acknowledges it here. All subscriptions of that topic receive it."
      action="Redrive"
      disabled={!ready || amount === 0 || finished}
      onClose={onClose}
      run={run}
    >
      <Field label="From subscription">
        {(id) => (
          <select id={id} value={source} onChange={(event) => setSource(event.target.value)}>
            <option value="">any subscription</option>
            {sources.map((one) => (
              <option key={one} value={one}>
                {idOf(one)}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label="To topic" hint="Empty: the topic of that subscription">
        {(id) => <input id={id} placeholder="projects/P/topics/T" value={topic} onChange={(event) => setTopic(event.target.value)} />}
      </Field>
      {!ready && <p className="note">Choose a subscription or enter a topic.</p>}
      {dry.isError && <Problem error={dry.error} />}
      {dry.isSuccess && !finished && (
        <p className="note" role="status">
          {plural(amount, "dead letter")}
          {dry.data.nextPageToken ? " or more" : ""} would be published to {idOf(dry.data.topic ?? "")}. Nothing has been changed yet.
        </p>
      )}
      {said.map((one) => (
        <p key={one} className="note" role="status">
          {one}
        </p>
      ))}
      <CopyAs cli={cli.join(" ")} method="Admin.RedriveDeadLetters" request={request} />
    </Confirm>
  );
}
