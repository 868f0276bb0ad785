// How the server is, and what it does this minute.

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";

import { last, ratesOf, useRates, useWatch } from "../api/live";
import { type Alert, firingQuery } from "../api/monitor";
import type { Counters, Disks, Member, Server } from "../api/types";
import { bytes, compact, count, duration, idOf, num, plural, projectOf, rate } from "../lib/format";
import { Budgets } from "../ui/Budgets";
import { ClusterChart, ClusterTiles, RATES, useClusterRates } from "../ui/ClusterRates";
import { FilledChart } from "../ui/FilledChart";
import { Card, Empty, Page, Problem, Tile } from "../ui/parts";
import { serves } from "../api/client";

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
            <Tile label="Outstanding" value={compact(counters.value?.outstanding_messages ?? null)} note={counters.value === null ? "" : plural(num(counters.value.streams), "stream")} />
          </>
        ) : (
          <>
            <ClusterTiles rates={rates} />
            <Tile label="Processes" value={inCluster.length} note={`${inCluster.filter((one) => one.draining).length} draining`} />
            <Tile label="Connections" value={compact(inCluster.reduce((all, one) => all + num(one.connections), 0))} />
          </>
        )}
        <Tile label="Topics" value={count(now?.topics)} note={now === null ? "" : plural(num(now.subscriptions), "subscription")} />
        <Tile label="CPU" value={last(cpu) === null ? "–" : `${Math.round((last(cpu) ?? 0) * 100)}%`} note="of one core" />
        <Tile label="Memory" value={bytes(counters.value?.memory_bytes)} note="this process" />
      </div>
      <Budgets />
      {inCluster === undefined ? (
        <FilledChart title="Messages per second" label="Messages per second over the last hour" lines={lines} height={190} />
      ) : (
        <ClusterChart rates={rates} />
      )}
      {inCluster === undefined && <Busiest counters={counters} />}
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

function Busiest({ counters }: { counters: ReturnType<typeof useWatch<Counters>> }) {
  const rows = useMemo(() => {
    const names = Object.keys(counters.value?.topics ?? {});
    return names
      .map((name) => ({ name, total: counters.value?.topics[name] ?? 0, rate: last(ratesOf(counters.samples.slice(-6), (one) => one.topics[name])) ?? 0 }))
      .sort((a, b) => b.rate - a.rate || b.total - a.total)
      .slice(0, 10);
  }, [counters]);
  return (
    <Card title="Busiest topics" flush>
      {rows.length === 0 ? (
        <Empty>No messages have been published since the server started.</Empty>
      ) : (
        <div className="scroll" tabIndex={0} role="group" aria-label="Busiest topics">
          <table>
            <thead>
              <tr>
                <th>Topic</th>
                <th>Project</th>
                <th className="right">Rate</th>
                <th className="right">Since server start</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((one) => (
                <tr key={one.name}>
                  <td>
                    <Link to="/p/$project/topics/$topic" params={{ project: projectOf(one.name), topic: idOf(one.name) }}>
                      {idOf(one.name)}
                    </Link>
                  </td>
                  <td className="muted">{projectOf(one.name)}</td>
                  <td className="right">{rate(one.rate)}</td>
                  <td className="right">{count(one.total)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}
