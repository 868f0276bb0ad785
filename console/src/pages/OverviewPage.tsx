// How the server is, and what it does this minute.

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";

import { last, ratesOf, useRates, useWatch } from "../api/live";
import { type Alert, firingQuery, historyQuery } from "../api/monitor";
import type { Counters, Disks, Member, Server } from "../api/types";
import { bytes, compact, count, duration, idOf, num, plural, projectOf, rate } from "../lib/format";
import { Budgets } from "../ui/Budgets";
import { ClusterChart, ClusterTiles, RATES, useClusterRates } from "../ui/ClusterRates";
import { FilledChart } from "../ui/FilledChart";
import { Card, Empty, Page, Problem, Tile } from "../ui/parts";
import { Table } from "../ui/Table";
import { serves } from "../api/client";

const LOOKS_S = 300;

export function OverviewPage() {
  const server = useWatch<Server>("server");
  const counters = useWatch<Counters>("rates");
  const disks = useWatch<Disks>("disks");
  const members = useWatch<{ members?: Member[] }>(serves("Admin.ListMembers") ? "members" : null);
  const published = useRates(counters, (one) => one.published_messages);
  const delivered = useRates(counters, (one) => one.delivered_messages);
  const acked = useRates(counters, (one) => one.acked_messages);
  const cpu = useRates(counters, (one) => one.cpu_seconds);
  const inCluster = members.value?.members;
  const lines = [
    { label: "published", tone: "--line-1", family: RATES[0][1], points: published },
    { label: "delivered", tone: "--line-2", family: RATES[1][1], points: delivered },
    { label: "acknowledged", tone: "--line-3", family: RATES[2][1], points: acked },
  ];
  const rates = useClusterRates(inCluster !== undefined);
  const alerts = useQuery({ ...firingQuery, enabled: serves("Admin.ListAlerts") });
  const now = server.value;
  return (
    <Page title="Overview" of={now !== null && `version ${now.version}, up ${duration(now.uptime)}`}>
      {server.error !== null && <Problem error={server.error} />}
      <Health server={now} disks={disks.value} members={inCluster} alerts={alerts.data?.alerts ?? []} />
      <div className="tiles">
        {inCluster === undefined ? (
          <>
            <Tile label="Published" value={rate(last(published))} />
            <Tile label="Delivered" value={rate(last(delivered))} />
            <Tile label="Acknowledged" value={rate(last(acked))} />
            <Backlog />
            <Tile label="Outstanding" value={compact(counters.value?.outstanding_messages ?? null)} note={counters.value === null ? "" : plural(num(counters.value.streams), "stream")} />
          </>
        ) : (
          <>
            <ClusterTiles rates={rates} />
            <Backlog />
            <Tile label="Processes" value={inCluster.length} note={`${inCluster.filter((one) => one.draining).length} draining`} />
          </>
        )}
        <Tile label="Topics" value={count(now?.topics)} note={now === null ? "" : plural(num(now.subscriptions), "subscription")} />
        {inCluster === undefined && <Tile label="CPU" value={last(cpu) === null ? "–" : `${Math.round((last(cpu) ?? 0) * 100)}%`} note={`memory ${bytes(counters.value?.memory_bytes)}`} />}
      </div>
      <Budgets />
      {inCluster === undefined ? (
        <FilledChart title="Messages per second" label="Messages per second over the last hour" lines={lines} height={190} />
      ) : (
        <ClusterChart rates={rates} />
      )}
      {inCluster === undefined ? <Busiest counters={counters} /> : <BusiestOfCluster />}
    </Page>
  );
}

/** What is not as it should be, in words; one line if all is well. */
function Health({ server, disks, members, alerts }: { server: Server | null; disks: Disks | null; members: Member[] | undefined; alerts: Alert[] }) {
  const found: string[] = alerts.filter((one) => !one.silenced).map((one) => one.summary);
  if (server?.draining) found.push("The server is draining: it accepts no new work and will stop soon.");
  for (const disk of disks?.disks ?? []) if (disk.state !== "OK") found.push(`Disk ${disk.path} is ${(disk.state ?? "unknown").toLowerCase()}${disk.reason === undefined ? "" : `: ${disk.reason}`}.`);
  if (num(disks?.underReplicated) > 0) found.push(`${count(disks?.underReplicated)} entries are not yet on every disk that should hold them.`);
  found.push(...(disks?.unknown ?? []));
  for (const one of members ?? []) if (one.draining) found.push(`${one.name} is draining.`);
  if (server === null || disks === null) return null;
  return (
    <div className={found.length === 0 ? "health good" : "health warn"} role="status">
      {found.length === 0 ? `All is well: ${disks.disks?.length ?? 0} ${disks.disks?.length === 1 ? "disk" : "disks"} OK; every acknowledged message is on each of them.` : null}
      {found.length > 0 && (
        <ul>
          {[...new Set(found)].map((one) => (
            <li key={one}>{one}</li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** Of all subscriptions, by the latest look. */
function Backlog() {
  const found = useQuery({ ...historyQuery({ family: "syncpoint_subscription_backlog_messages" }, LOOKS_S), enabled: serves("Admin.QueryHistory"), retry: false });
  return <Tile label="Backlog" value={compact(found.data === undefined ? null : (found.data.series[0]?.values.findLast((one) => one !== null) ?? 0))} note="messages" />;
}

function BusiestOfCluster() {
  const found = useQuery({ ...historyQuery({ family: RATES[0][1], groupBy: ["project", "topic"] }, LOOKS_S), enabled: serves("Admin.QueryHistory"), retry: false });
  const rows = (found.data?.series ?? [])
    .filter((one) => one.labels["topic"] !== "_other")
    .map(({ labels, values }) => ({ name: `projects/${labels["project"] ?? ""}/topics/${labels["topic"] ?? ""}`, rate: values.findLast((one) => one !== null) ?? 0 }))
    .sort((a, b) => b.rate - a.rate)
    .slice(0, 10);
  return <BusiestTable rows={rows} />;
}

function Busiest({ counters }: { counters: ReturnType<typeof useWatch<Counters>> }) {
  const rows = useMemo(() => {
    const names = Object.keys(counters.value?.topics ?? {});
    return names
      .map((name) => ({ name, total: counters.value?.topics[name] ?? 0, rate: last(ratesOf(counters.samples.slice(-6), (one) => one.topics[name])) ?? 0 }))
      .sort((a, b) => b.rate - a.rate || b.total - a.total)
      .slice(0, 10);
  }, [counters]);
  return <BusiestTable rows={rows} />;
}

function BusiestTable({ rows }: { rows: { name: string; rate: number }[] }) {
  return (
    <Card title="Busiest topics" flush>
      {rows.length === 0 ? (
        <Empty>No messages have been published lately.</Empty>
      ) : (
        <Table
          label="Busiest topics"
          rows={rows}
          rowKey={(one) => one.name}
          columns={[
            {
              title: "Topic",
              cell: (one) => (
                <Link to="/p/$project/topics/$topic" params={{ project: projectOf(one.name), topic: idOf(one.name) }}>
                  {idOf(one.name)}
                </Link>
              ),
            },
            { title: "Project", style: "muted", cell: (one) => projectOf(one.name) },
            { title: "Published", right: true, cell: (one) => rate(one.rate) },
          ]}
        />
      )}
    </Card>
  );
}
