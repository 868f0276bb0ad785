// Which acknowledged messages would be affected if a disk, process or place failed now, alone or several at once.

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import { type AtRisk, atRiskQuery, type Failure, goneOf, OUTCOMES, type Outcome, requestFor, type RiskCount, type TopicRisk } from "../api/atRisk";
import { shell } from "../lib/copies";
import { bytes, count, idOf, num, plural, projectOf, time } from "../lib/format";
import { atRiskRoute } from "../router";
import { CopyAs } from "../ui/CopyAs";
import { Badge, Card, Empty, Field, Loading, Page, Problem, Tile, type Tone } from "../ui/parts";
import { Table } from "../ui/Table";

const TITLES: Record<Outcome, string> = { lost: "Lost", unavailable: "Unavailable", twice: "Delivered twice" };
const MEANINGS: Record<Outcome, string> = {
  lost: "still needed, and left on no disk",
  unavailable: "stored, but not deliverable until it returns",
  twice: "already delivered, would be delivered again",
};
const TONES: Record<Outcome, Tone> = { lost: "bad", unavailable: "warn", twice: "warn" };

const keyOf = (one: Failure): string => `${one.kind.toLowerCase()}:${one.name}`;
const wordsOf = (gone: string): string => goneOf(gone)?.kind + " " + goneOf(gone)?.name;

/** A count that misses what could not be found out is a least. */
const counted = (of: RiskCount | undefined, sure: boolean): string => `${sure ? "" : "≥ "}${count(of?.messages)}`;

export function AtRiskPage() {
  const { gone = [] } = atRiskRoute.useSearch();
  const go = useNavigate({ from: atRiskRoute.fullPath });
  const each = useQuery(atRiskQuery([]));
  const show = (next: string[]) => void go({ search: next.length === 0 ? {} : { gone: next } });
  const known = (each.data?.failures ?? []).map(keyOf).filter((one) => goneOf(one) !== null && !gone.includes(one));
  return (
    <Page title="At risk" of="Acknowledged messages that a failure now would affect. This page changes nothing.">
      <Card title="Simulate failures" note="everything selected fails at once">
        <div className="filters bare">
          <Field label={gone.length === 0 ? "Failed component" : "Another failed component"}>
            {(id) => (
              <select id={id} value="" onChange={(event) => show([...gone, event.target.value])}>
                <option value="">{each.isPending ? "Loading …" : known.length === 0 ? "No more components" : "Choose …"}</option>
                {known.map((one) => (
                  <option key={one} value={one}>
                    {wordsOf(one)}
                  </option>
                ))}
              </select>
            )}
          </Field>
          {gone.map((one) => (
            <button key={one} type="button" aria-label={`Remove ${wordsOf(one)}`} onClick={() => show(gone.filter((other) => other !== one))}>
              {wordsOf(one)} <span aria-hidden="true">✕</span>
            </button>
          ))}
        </div>
      </Card>
      {gone.length === 0 ? <Each found={each.data} error={each.error} onChoose={(one) => show([one])} /> : <Together gone={gone} />}
    </Page>
  );
}

function Unknown({ of }: { of: string[] | undefined }) {
  return (of ?? []).map((one) => (
    <p key={one} className="note warn">
      Unknown; more may be at risk: {one}
    </p>
  ));
}

function Each({ found, error, onChoose }: { found: AtRisk | undefined; error: unknown; onChoose: (one: string) => void }) {
  const sure = (found?.unknown ?? []).length === 0;
  const failures = [...(found?.failures ?? [])].sort(worstFirst);
  const [open, setOpen] = useState(false);
  const harmful = failures.filter(matters);
  const harmless = failures.filter((one) => !matters(one));
  const stopping = failures.filter((one) => (one.stopped ?? []).length > 0).length;
  const safe = sure && failures.length > 0 && failures.every((one) => num(one.lost?.messages) === 0 && num(one.facts) === 0);
  return (
    <>
      <Unknown of={found?.unknown} />
      {safe && stopping === 0 && <p className="note good">No single failure below would lose a message or interrupt service.</p>}
      {safe && stopping > 0 && (
        <p className="note warn">
          No single failure below would lose a message; {count(stopping)} of {count(failures.length)} would interrupt service, as the last column shows.
        </p>
      )}
      <Card title="Single failures" note={harmless.length > 0 && !open ? `worst first; ${plural(harmless.length, "failure")} that would affect nothing ${harmless.length === 1 ? "is" : "are"} left out` : "worst first"} flush actions={<CopyAs cli="syncpoint at-risk" method="Admin.GetAtRisk" request={{}} />}>
        {error !== null && <Problem error={error} />}
        {error === null && found === undefined && <Loading />}
        {found !== undefined && failures.length === 0 && <Empty>No disks or processes are known yet.</Empty>}
        <Table
          label="Failures"
          rows={open ? failures : harmful}
          rowKey={keyOf}
          columns={[
            {
              title: "Failure of",
              cell: (one) => (
                <button type="button" className="link" onClick={() => onChoose(keyOf(one))}>
                  {wordsOf(keyOf(one))}
                </button>
              ),
            },
            ...OUTCOMES.map((outcome) => ({
              title: TITLES[outcome],
              right: true,
              cell: (one: Failure) => (num(one[outcome]?.messages) > 0 ? <Badge tone={TONES[outcome]}>{counted(one[outcome], sure)}</Badge> : counted(one[outcome], sure)),
            })),
            { title: "Service interrupted", style: "wrap", cell: (one) => <span className="muted">{stoppedOf(one)}</span> },
          ]}
        />
        {found !== undefined && failures.length > 0 && !open && harmful.length === 0 && <Empty>No failure of a single component would lose, hold back or repeat a message, or interrupt service.</Empty>}
        {harmless.length > 0 && (
          <footer className="list-foot">
            <button type="button" onClick={() => setOpen(!open)}>
              {open ? "Show only failures that matter" : `Show all ${count(failures.length)}`}
            </button>
          </footer>
        )}
      </Card>
    </>
  );
}

/** Whether anything would be different. */
const matters = (one: Failure): boolean => OUTCOMES.some((outcome) => num(one[outcome]?.messages) > 0) || num(one.facts) > 0 || (one.stopped ?? []).length > 0;

/** By what is lost, then by what cannot be had, then by what stops. */
function worstFirst(one: Failure, other: Failure): number {
  const harm = (of: Failure) => [num(of.lost?.messages) + num(of.facts), num(of.unavailable?.messages), (of.stopped ?? []).length];
  const [ours, theirs] = [harm(one), harm(other)];
  return ours.map((value, at) => (theirs[at] ?? 0) - value).find((difference) => difference !== 0) ?? 0;
}

function stoppedOf(one: Failure): string {
  const [first, ...others] = one.stopped ?? [];
  return first === undefined ? "" : others.length === 0 ? first : `${first} (and ${others.length} more)`;
}

function Together({ gone }: { gone: string[] }) {
  const found = useQuery(atRiskQuery(gone));
  const failure = found.data?.failures?.[0];
  const request = requestFor(gone);
  const cli = ["syncpoint at-risk", ...gone.map((one) => `--${goneOf(one)?.kind ?? ""} ${shell(goneOf(one)?.name ?? "")}`)];
  if (found.isError) return <Problem error={found.error} />;
  if (found.isPending || failure === undefined) return <Loading />;
  const sure = (found.data.unknown ?? []).length === 0;
  const topics = failure.topics ?? [];
  const rows = topics.flatMap((topic) => OUTCOMES.filter((outcome) => num(topic[outcome]?.messages) > 0).map((outcome) => ({ topic, outcome })));
  return (
    <>
      <Unknown of={found.data.unknown} />
      <div className="tiles">
        {OUTCOMES.map((outcome) => (
          <Tile key={outcome} label={TITLES[outcome]} value={counted(failure[outcome], sure)} note={MEANINGS[outcome]} tone={num(failure[outcome]?.messages) > 0 ? (outcome === "lost" ? "bad" : "warn") : undefined} />
        ))}
      </div>
      {(failure.stopped ?? []).map((one) => (
        <p key={one} className="note warn">
          Service interrupted: {one}
        </p>
      ))}
      {num(failure.facts) > 0 && <p className="note warn">Also, {plural(num(failure.facts), "change")} to topics, subscriptions and similar would be lost.</p>}
      <Card title="By topic" flush actions={<CopyAs cli={cli.join(" ")} method="Admin.GetAtRisk" request={request} />}>
        {rows.length === 0 && <Empty>{sure ? "No messages would be lost, unavailable or delivered twice." : "Among the parts that could be checked, no messages would be lost, unavailable or delivered twice."}</Empty>}
        <Table
          label="Topics"
          rows={rows}
          rowKey={({ topic, outcome }) => `${topic.topic} ${outcome}`}
          columns={[
            { title: "Topic", cell: ({ topic }) => <TopicName of={topic} /> },
            { title: "Outcome", cell: ({ outcome }) => <Badge tone={TONES[outcome]}>{TITLES[outcome].toLowerCase()}</Badge> },
            { title: "Messages", right: true, cell: ({ topic, outcome }) => counted(topic[outcome], sure) },
            { title: "Bytes", right: true, cell: ({ topic, outcome }) => (topic[outcome]?.bytes === undefined ? "" : bytes(topic[outcome].bytes)) },
            { title: "Oldest", cell: ({ topic, outcome }) => (topic[outcome]?.oldestPublishTime === undefined ? "" : time(topic[outcome].oldestPublishTime)) },
            { title: "Source: offsets", style: "mono", cell: ({ topic, outcome }) => <Ranges of={topic[outcome]} /> },
          ]}
        />
      </Card>
    </>
  );
}

function TopicName({ of }: { of: TopicRisk }) {
  if (!of.topic.startsWith("projects/")) return <>{of.topic}</>;
  return (
    <Link to="/p/$project/topics/$topic" params={{ project: projectOf(of.topic), topic: idOf(of.topic) }}>
      {of.topic}
    </Link>
  );
}

function Ranges({ of }: { of: RiskCount | undefined }) {
  const ranges = of?.ranges ?? [];
  const more = num(of?.rangesTotal) - ranges.length;
  return (
    <>
      {ranges.map((one) => (
        <div key={`${one.chain ?? 0} ${one.source ?? 0} ${one.firstOffset ?? 0} ${one.subscription ?? ""}`}>
          {one.source ?? 0}: {one.firstOffset ?? 0}–{one.lastOffset ?? 0}
          {one.subscription !== undefined && ` (${idOf(one.subscription)})`}
        </div>
      ))}
      {more > 0 && <div>and {plural(more, "more range")}</div>}
    </>
  );
}
