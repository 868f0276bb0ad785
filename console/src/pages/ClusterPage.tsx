// Clusters and their disks, as a map; who owns which chain; the processes.

import { useQuery } from "@tanstack/react-query";

import { serves } from "../api/client";
import { useWatch } from "../api/live";
import { historyQuery } from "../api/monitor";
import { callQuery } from "../api/queries";
import type { Chain, Disk, Disks, DiskStateName, Member } from "../api/types";
import { bytes, count, num, plural, rate } from "../lib/format";
import { CopyAs } from "../ui/CopyAs";
import { Owners } from "../ui/Owners";
import { Badge, Card, Empty, Page, Problem, type Tone } from "../ui/parts";
import { Table } from "../ui/Table";

const TONES: Record<DiskStateName, Tone> = { STATE_UNSPECIFIED: "warn", OK: "good", HEALING: "warn", AWAY: "warn", UNKNOWN: "warn", FAILED: "bad", DAMAGED: "bad" };

export function ClusterPage() {
  const disks = useWatch<Disks>("disks");
  const inCluster = serves("Admin.ListMembers");
  return (
    <Page title={inCluster ? "Cluster and disks" : "Disks"}>
      {disks.error !== null && <Problem error={disks.error} />}
      {(disks.value?.unknown ?? []).map((one) => (
        <p key={one} className="note warn">
          Unknown: {one}
        </p>
      ))}
      <DiskMap disks={disks.value?.disks ?? []} lacking={num(disks.value?.underReplicated)} />
      {inCluster && <Chains />}
      {inCluster && serves("Admin.ListOwnerships") && <OwnersOfChains />}
      {inCluster && <Members />}
      {serves("Admin.ListDurabilityClasses") && <Classes />}
    </Page>
  );
}

/** /CLUSTER/DISK of a cluster; of one node the folder, in a single group. */
function placeOf(disk: Disk): [cluster: string, name: string] {
  const parts = disk.path.split("/").filter((one) => one !== "");
  return disk.chains !== undefined && parts.length === 2 ? [parts[0] as string, parts[1] as string] : ["This server", parts.at(-1) ?? disk.path];
}

function DiskMap({ disks, lacking }: { disks: Disk[]; lacking: number }) {
  const groups = new Map<string, [string, Disk][]>();
  for (const disk of disks) {
    const [cluster, name] = placeOf(disk);
    groups.set(cluster, [...(groups.get(cluster) ?? []), [name, disk]]);
  }
  return (
    <Card
      title="Disks"
      note={lacking > 0 ? `${plural(lacking, "entry", "entries")} not yet on every disk that should hold them` : "every acknowledged entry is on all disks that should hold it"}
      actions={<CopyAs cli="syncpoint disks list" method="Admin.ListDisks" request={{}} />}
    >
      <div className="disk-map">
        {[...groups].map(([cluster, members]) => (
          <section key={cluster} aria-label={cluster}>
            <h3>{cluster}</h3>
            <div className="disk-row">
              {members.map(([name, disk]) => (
                <article key={disk.path} className={`disk ${TONES[disk.state ?? "UNKNOWN"]}`}>
                  <header>
                    <b title={disk.path}>{name}</b>
                    <Badge tone={TONES[disk.state ?? "UNKNOWN"]}>{(disk.state ?? "UNKNOWN").toLowerCase()}</Badge>
                  </header>
                  <dl>
                    <dt>Free</dt>
                    <dd>{disk.freeBytes === undefined ? "–" : bytes(disk.freeBytes)}</dd>
                    {disk.chains === undefined && (
                      <>
                        <dt>Log position</dt>
                        <dd>{count(disk.position)}</dd>
                      </>
                    )}
                    {disk.chains !== undefined && (
                      <>
                        <dt>Chains</dt>
                        <dd>{disk.chains.length}</dd>
                      </>
                    )}
                    <dt>Missing entries</dt>
                    <dd>{count(disk.underReplicated)}</dd>
                    {num(disk.damaged) > 0 && (
                      <>
                        <dt>Damaged places</dt>
                        <dd>{count(disk.damaged)}</dd>
                      </>
                    )}
                  </dl>
                  {disk.reason !== undefined && disk.reason !== "" && <p>{disk.reason}</p>}
                </article>
              ))}
            </div>
          </section>
        ))}
      </div>
    </Card>
  );
}

function Chains() {
  const { value, error } = useWatch<{ chains?: Chain[] }>("chains");
  const chains = value?.chains ?? [];
  return (
    <Card title="Chains" note="each chain has one owner and one set of disks" flush actions={<CopyAs cli="syncpoint cluster status" method="Admin.ListChains" request={{}} />}>
      {error !== null && <Problem error={error} />}
      {value !== null && chains.length === 0 && <Empty>No chains yet. Publish forwarders create them when they start.</Empty>}
      <Table
        label="Chains"
        rows={chains}
        rowKey={(one) => String(one.number ?? 0)}
        columns={[
          { title: "Chain", cell: (one) => one.number ?? 0 },
          { title: "Name", style: "wrap", cell: (one) => one.name },
          { title: "Owner", style: "wrap", cell: (one) => (one.owner ? one.owner : <Badge tone="bad">none</Badge>) },
          { title: "Home", style: "wrap", cell: (one) => <span className={one.owner === one.home ? "muted" : ""}>{one.home}</span> },
          { title: "Epoch", right: true, cell: (one) => count(one.epoch) },
          { title: "Class", cell: (one) => one.durabilityClass },
          { title: "Region", cell: (one) => one.region },
          {
            title: "Disks",
            style: "wrap",
            cell: (one) => (
              <>
                {one.belowPolicy && <Badge tone="warn">below policy</Badge>} <span className="muted">{(one.disks ?? []).map((disk) => `${disk.cluster ?? ""}/${disk.disk ?? ""}`).join(" ")}</span>
              </>
            ),
          },
        ]}
      />
    </Card>
  );
}

function OwnersOfChains() {
  return <Owners chains={useWatch<{ chains?: Chain[] }>("chains").value?.chains ?? []} />;
}

const LOOKS_S = 300;

/** By process, the newest number that history has of a family; undefined: none. */
function useByProcess(family: string): Map<string, number> {
  const found = useQuery({ ...historyQuery({ family, groupBy: ["process"] }, LOOKS_S), enabled: serves("Admin.QueryHistory"), retry: false });
  return new Map((found.data?.series ?? []).map((one) => [one.labels["process"] ?? "", one.values.findLast((value) => value !== null) ?? 0]));
}

function Members() {
  const { value, error } = useWatch<{ members?: Member[] }>("members");
  const published = useByProcess("syncpoint_publish_messages_total");
  const stored = useByProcess("syncpoint_publish_bytes_total");
  const delivered = useByProcess("syncpoint_subscription_messages_total");
  const calls = useByProcess("syncpoint_calls_total");
  const cpu = useByProcess("process_cpu_seconds_total");
  const memory = useByProcess("process_resident_memory_bytes");
  const streams = useByProcess("syncpoint_delivery_streams");
  const per = (from: Map<string, number>, one: Member): string => (from.get(one.name) === undefined ? "" : rate(from.get(one.name) ?? null));
  return (
    <Card title="Processes" note="all processes of the cluster, as of the latest look of its monitor" flush actions={<CopyAs cli="syncpoint top" method="Admin.ListMembers" request={{}} />}>
      {error !== null && <Problem error={error} />}
      <Table
        label="Processes"
        rows={value?.members ?? []}
        rowKey={(one) => one.name}
        columns={[
          {
            title: "Name",
            cell: (one) => (
              <>
                {one.name} {one.draining && <Badge tone="warn">draining</Badge>}
                <div className="muted small">{[(one.roles ?? []).filter((role) => !one.name.startsWith(role)).join(", "), [one.region, one.zone, one.rack].filter((part) => part).join(" / "), one.version].filter((part) => part !== "").join(" · ")}</div>
              </>
            ),
          },
          { title: "CPU", right: true, cell: (one) => (cpu.get(one.name) === undefined ? "" : `${Math.round((cpu.get(one.name) ?? 0) * 100)}%`) },
          { title: "Memory", right: true, cell: (one) => (memory.get(one.name) === undefined ? "" : bytes(memory.get(one.name))) },
          { title: "Calls", right: true, cell: (one) => per(calls, one) },
          { title: "Published", right: true, cell: (one) => per(published, one) },
          { title: "Bytes", right: true, cell: (one) => (stored.get(one.name) === undefined ? "" : `${bytes(stored.get(one.name))}/s`) },
          { title: "Delivered", right: true, cell: (one) => per(delivered, one) },
          { title: "Streams", right: true, cell: (one) => (streams.get(one.name) === undefined ? "" : count(streams.get(one.name))) },
          { title: "Chains", right: true, cell: (one) => (num(one.chains) === 0 ? "" : count(one.chains)) },
        ]}
      />
    </Card>
  );
}

interface DurabilityClass {
  name: string;
  clusters?: number;
  disks?: number;
  within?: string;
  over?: string;
  durability?: string;
}

const quorumOf = (within: string | undefined): string => (within === "all" ? "all" : "a majority of");

function Classes() {
  const found = useQuery(callQuery<{ durabilityClasses?: DurabilityClass[] }>("Admin.ListDurabilityClasses"));
  const classes = found.data?.durabilityClasses ?? [];
  if (classes.length === 0) return null;
  return (
    <Card title="Durability classes" note="how many disks must store a message before its publish succeeds" flush>
      <Table
        label="Durability classes"
        rows={classes}
        rowKey={(one) => one.name}
        columns={[
          { title: "Class", cell: (one) => one.name },
          { title: "Disks", cell: (one) => `${one.clusters ?? 1} × ${one.disks ?? 1}` },
          { title: "Publish succeeds when stored on", style: "wrap", cell: (one) => `${quorumOf(one.within)} disks in ${quorumOf(one.over)} storage clusters` },
          { title: "Durability", cell: (one) => (one.durability ?? "").toLowerCase() },
        ]}
      />
    </Card>
  );
}
