// Clusters and their disks, as a map; who owns which chain; the processes.

import { useQuery } from "@tanstack/react-query";

import { serves } from "../api/client";
import { useWatch } from "../api/live";
import { callQuery } from "../api/queries";
import type { Chain, Disk, Disks, DiskStateName, Member } from "../api/types";
import { bytes, compact, count, num, plural, rate } from "../lib/format";
import { CopyAs } from "../ui/CopyAs";
import { Owners } from "../ui/Owners";
import { Badge, Card, Empty, Page, Problem, type Tone } from "../ui/parts";

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
      {chains.length > 0 && (
        <div className="scroll" tabIndex={0} role="group" aria-label="Chains">
          <table>
            <thead>
              <tr>
                <th className="right">Chain</th>
                <th>Name</th>
                <th>Owner</th>
                <th>Home</th>
                <th className="right">Epoch</th>
                <th>Class</th>
                <th>Region</th>
                <th>Disks</th>
              </tr>
            </thead>
            <tbody>
              {chains.map((one) => (
                <tr key={one.number ?? 0}>
                  <td className="right">{one.number ?? 0}</td>
                  <td>{one.name}</td>
                  <td>{one.owner ? one.owner : <Badge tone="bad">none</Badge>}</td>
                  <td className={one.owner === one.home ? "muted" : ""}>{one.home}</td>
                  <td className="right">{count(one.epoch)}</td>
                  <td>{one.durabilityClass}</td>
                  <td>{one.region}</td>
                  <td>
                    {one.belowPolicy && <Badge tone="warn">below policy</Badge>} <span className="muted">{(one.disks ?? []).map((disk) => `${disk.cluster ?? ""}/${disk.disk ?? ""}`).join(" ")}</span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}

function OwnersOfChains() {
  return <Owners chains={useWatch<{ chains?: Chain[] }>("chains").value?.chains ?? []} />;
}

function Members() {
  const { value, error } = useWatch<{ members?: Member[] }>("members");
  const members = value?.members ?? [];
  return (
    <Card title="Processes" flush actions={<CopyAs cli="syncpoint cluster status" method="Admin.ListMembers" request={{}} />}>
      {error !== null && <Problem error={error} />}
      {members.length > 0 && (
        <div className="scroll" tabIndex={0} role="group" aria-label="Processes">
          <table>
            <thead>
              <tr>
                <th>Name</th>
                <th>Roles</th>
                <th>Location</th>
                <th>Version</th>
                <th className="right">Connections</th>
                <th className="right">Messages</th>
                <th className="right">Bytes</th>
                <th className="right">Chains</th>
              </tr>
            </thead>
            <tbody>
              {members.map((one) => (
                <tr key={one.name}>
                  <td>
                    {one.name} {one.draining && <Badge tone="warn">draining</Badge>}
                  </td>
                  <td>{(one.roles ?? []).join(", ")}</td>
                  <td className="muted">{[one.region, one.zone, one.rack].filter((part) => part).join(" / ")}</td>
                  <td className="muted">{one.version}</td>
                  <td className="right">{compact(num(one.connections))}</td>
                  <td className="right">{rate(one.messagesPerSecond ?? 0)}</td>
                  <td className="right">{bytes(one.bytesPerSecond)}/s</td>
                  <td className="right">{num(one.chains) === 0 ? "" : count(one.chains)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
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
      <div className="scroll" tabIndex={0} role="group" aria-label="Durability classes">
        <table>
          <thead>
            <tr>
              <th>Class</th>
              <th>Disks</th>
              <th>Publish succeeds when stored on</th>
              <th>Durability</th>
            </tr>
          </thead>
          <tbody>
            {classes.map((one) => (
              <tr key={one.name}>
                <td>{one.name}</td>
                <td>
                  {one.clusters ?? 1} × {one.disks ?? 1}
                </td>
                <td>
                  {quorumOf(one.within)} disks in {quorumOf(one.over)} storage clusters
                </td>
                <td>{(one.durability ?? "").toLowerCase()}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
