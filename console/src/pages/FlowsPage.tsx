// What this server knows of a federation: what is copied to it, and who reads its topics from elsewhere.

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { type ArrivingFlow, type Flows, flowsQuery, type LeavingFlow } from "../api/flows";
import { shell } from "../lib/copies";
import { bytes, compact, count, idOf, num, plural, projectOf, rate, time } from "../lib/format";
import { Badge, Card, CopyButton, Empty, Loading, Page, Problem, type Tone } from "../ui/parts";
import { SiteMap, sitesOf } from "../ui/SiteMap";
import { Table } from "../ui/Table";

export function FlowsPage() {
  const [query] = useState(flowsQuery);
  const found = useQuery(query);
  return (
    <Page title="Federation" of="Flows that copy messages to this server, and readers of its topics">
      {found.isError && <Problem error={found.error} />}
      {(found.data?.unknown ?? []).map((one) => (
        <p key={one} className="note warn">
          Unknown: {one}
        </p>
      ))}
      {found.isPending ? <Loading /> : found.data !== undefined && <Known flows={found.data} />}
      <p className="muted">
        Flows run in a separate program. <code>syncpoint federation status</code>, where it runs, shows whether it is up and which flows are paused.
      </p>
    </Page>
  );
}

/** How fast a count grew between two looks, per second; null: it was looked at once. */
function growth<T>(flows: Flows, now: number, before: T | undefined, of: (one: T) => number): number | null {
  if (flows.before === null || before === undefined) return null;
  return Math.max(0, now - of(before)) / ((flows.at - flows.before.at) / 1000);
}

const rowsRate = (flows: Flows, one: ArrivingFlow): number | null => growth(flows, num(one.rows), flows.before?.arriving.find((other) => other.name === one.name), (other) => num(other.rows));

/** Where a flow comes from and goes to this very server, what of it waits is known here, too. */
const waiting = (flows: Flows, name: string): LeavingFlow | undefined => flows.leaving.find((one) => one.name === name);

function stateOf(flows: Flows, one: ArrivingFlow): [string, Tone, string] {
  if (one.gaps.length > 0) return ["blocked", "bad", `messages before ${one.gaps.join(", ")} are gone at the source; the flow stops until the gap is accepted`];
  if ((rowsRate(flows, one) ?? 0) > 0) return ["copying", "good", ""];
  const left = num(waiting(flows, one.name)?.lagMessages);
  if (left > 0) return ["waiting", "warn", `${plural(left, "message")} left at the source`];
  if (waiting(flows, one.name) !== undefined) return ["caught up", "good", ""];
  return ["quiet", "calm", ""];
}

function Known({ flows }: { flows: Flows }) {
  const mapped = [...flows.arriving, ...flows.leaving].some((one) => sitesOf(one.name) !== null);
  return (
    <>
      {mapped && (
        <Card title="Sites" note="by the flows that this server knows of: what comes from where, and who is how far behind">
          <SiteMap flows={flows} rate={(one) => rowsRate(flows, one)} />
        </Card>
      )}
      <Card title="Incoming flows" note="each message is copied exactly once" flush>
        {flows.arriving.length === 0 && flows.unknown.length === 0 && <Empty>No flows copy to this server. Describe servers and topics in federation.yaml, then start <code>syncpoint federation run</code>.</Empty>}
        <Table
          label="Incoming flows"
          rows={flows.arriving}
          rowKey={(one) => one.name}
          below={(one) =>
            one.gaps.length > 0 && (
              <p>
                {stateOf(flows, one)[2]} <CopyButton text={`syncpoint federation accept-gap ${shell(one.name)}`} label="Copy accept-gap command" />
              </p>
            )
          }
          columns={[
            { title: "Flow", cell: (one) => one.name },
            {
              title: "State",
              cell: (one) => {
                const [state, tone, why] = stateOf(flows, one);
                return (
                  <>
                    <Badge tone={tone}>{state}</Badge> {one.gaps.length === 0 && <span className="muted">{why}</span>}
                  </>
                );
              },
            },
            { title: "Source topic", style: "muted", cell: (one) => one.sourceTopic },
            { title: "Rate", right: true, cell: (one) => rate(rowsRate(flows, one)) },
            {
              title: "Copied",
              right: true,
              cell: (one) => (
                <>
                  {count(one.rows)}
                  <div className="muted small">{bytes(one.bytes)}</div>
                </>
              ),
            },
            { title: "Last commit", cell: (one) => (one.committedAt === undefined ? "never" : time(one.committedAt).slice(0, 19)) },
            { title: "Duplicates", right: true, cell: (one) => compact(num(one.duplicatesDropped)) },
            { title: "Skipped", right: true, cell: (one) => (one.skipped > 0 ? <Badge tone="warn">{count(one.skipped)}</Badge> : 0) },
            {
              title: null,
              right: true,
              cell: (one) => (
                <>
                  <CopyButton text={`syncpoint federation pause ${shell(one.name)}`} label="Copy pause" />
                  <CopyButton text={`syncpoint federation resume ${shell(one.name)}`} label="Copy resume" />
                </>
              ),
            },
          ]}
        />
      </Card>
      {flows.homes.length > 0 && (
        <Card title="Homes" note="of subscriptions that several sites have, one site delivers each; acknowledgements are brought to it" flush>
          <Table
            label="Homes"
            rows={flows.homes}
            rowKey={(one) => one.subscription}
            columns={[
              {
                title: "Subscription",
                cell: (one) => (
                  <Link to="/p/$project/subscriptions/$subscription" params={{ project: projectOf(one.subscription), subscription: idOf(one.subscription) }}>
                    {one.subscription}
                  </Link>
                ),
              },
              { title: "Home", cell: (one) => (one.home === one.site ? <Badge tone="good">{one.home}, this site</Badge> : <Badge>{one.home}</Badge>) },
              { title: "Epoch", right: true, cell: (one) => count(one.epoch) },
              { title: null, right: true, cell: (one) => <CopyButton text={`syncpoint federation home ${shell(idOf(one.subscription))} SITE --project ${shell(projectOf(one.subscription))}`} label="Copy move" /> },
            ]}
          />
        </Card>
      )}
      <Card title="Readers" note="messages that a named reader has not read yet are kept for it" flush>
        {flows.leaving.length === 0 && flows.unknown.length === 0 && <Empty>No readers. Federation flows, archives and Spark queries with a cursor appear here.</Empty>}
        <Table
          label="Readers"
          rows={flows.leaving}
          rowKey={(one) => `${one.topic} ${one.name}`}
          columns={[
            { title: "Reader", cell: (one) => one.name },
            {
              title: "Topic",
              cell: (one) => (
                <Link to="/p/$project/topics/$topic" params={{ project: projectOf(one.topic), topic: idOf(one.topic) }}>
                  {one.topic}
                </Link>
              ),
            },
            { title: "State", cell: (one) => (one.lost > 0 ? <Badge tone="bad">{plural(one.lost, "message")} lost</Badge> : num(one.lagMessages) > 0 ? <Badge tone="warn">lagging</Badge> : <Badge tone="good">caught up</Badge>) },
            { title: "Lag", right: true, cell: (one) => count(one.lagMessages) },
            { title: "Bytes", right: true, cell: (one) => (num(one.lagMessages) === 0 ? "" : `≈ ${bytes(one.lagBytes)}`) },
            { title: "Last read", cell: (one) => (one.used === undefined ? "never" : time(one.used)) },
          ]}
        />
      </Card>
    </>
  );
}
