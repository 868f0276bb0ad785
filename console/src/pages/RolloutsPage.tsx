// The newest rollout: how far it is, what the release does beside what runs without it, and a way back.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { call, serves } from "../api/client";
import { type Rollout, rolloutQuery } from "../api/rollout";
import { usePermissions } from "../api/queries";
import { shell } from "../lib/copies";
import { compact, count, duration, seconds, time } from "../lib/format";
import { CopyAs } from "../ui/CopyAs";
import { Badge, Card, Confirm, Empty, Facts, Field, Loading, OnlyInClusters, Page, Problem, type Tone } from "../ui/parts";

const UPDATE = "syncpoint.server.update";
const TONES: Record<Rollout["state"], Tone> = { running: "good", "rolling back": "warn", done: "good", "rolled back": "bad" };
const under = (rollout: Rollout): boolean => rollout.state === "running" || rollout.state === "rolling back";

export function RolloutsPage() {
  const found = useQuery({ ...rolloutQuery, enabled: serves("Admin.GetRollout") });
  const rights = usePermissions("server", [UPDATE]);
  const [aborting, setAborting] = useState(false);
  const none = found.data === null;
  const rollout = found.data ?? undefined;
  if (!serves("Admin.GetRollout")) return <OnlyInClusters title="Rollouts" />;
  return (
    <Page
      title="Rollouts"
      of={rollout === undefined ? undefined : `${rollout.name}: version ${rollout.version}${rollout.commit ? ` at ${rollout.commit.slice(0, 12)}` : ""}`}
      actions={
        rollout?.state === "running" &&
        rights.has(UPDATE) && (
          <button type="button" className="danger" onClick={() => setAborting(true)}>
            Abort…
          </button>
        )
      }
    >
      {found.error !== null && <Problem error={found.error} />}
      {found.data === undefined && found.error === null && <Loading />}
      {none && <NoneYet />}
      {rollout !== undefined && (
        <>
          <Steps rollout={rollout} />
          <div className="columns">
            <Now rollout={rollout} />
            <Compared rollout={rollout} />
          </div>
          <Story rollout={rollout} />
        </>
      )}
      {aborting && rollout !== undefined && <Abort rollout={rollout} onClose={() => setAborting(false)} />}
    </Page>
  );
}

function Steps({ rollout }: { rollout: Rollout }) {
  const steps = rollout.steps ?? [];
  const at = rollout.state === "done" ? steps.length : steps.indexOf(rollout.step ?? "");
  const back = rollout.state === "rolling back" || rollout.state === "rolled back";
  const watched = seconds(rollout.watch) === 0 ? null : Math.min(1, seconds(rollout.watched) / seconds(rollout.watch));
  return (
    <Card title="Steps" note={<Badge tone={TONES[rollout.state]}>{rollout.state}</Badge>}>
      <ol className="steps">
        {steps.map((step, index) => {
          const state = index < at ? "done" : index === at ? (back ? "broken" : "now") : "pending";
          return (
            <li key={step} className={state.replace(" ", "-")} aria-current={index === at ? "step" : undefined}>
              <b>{step}</b>
              <span className="small">{state === "now" ? (rollout.deployed ? "watched" : "restarting") : state === "broken" ? "rolled back from here" : state}</span>
              {state === "now" && watched !== null && (
                <span className="budget good" aria-hidden="true">
                  <i style={{ width: `${watched * 100}%` }} />
                </span>
              )}
            </li>
          );
        })}
      </ol>
      {rollout.reason && <p className="note warn">Rolling back: {rollout.reason}</p>}
      {rollout.waitsFor && under(rollout) && <p className="note">Waiting for: {rollout.waitsFor}</p>}
      {rollout.abortedBy && <p className="note warn">Abort requested by {rollout.abortedBy}</p>}
      {under(rollout) && !rollout.controller && (
        <p className="note warn">
          No controller is running, so the rollout makes no progress. Run <code>syncpoint rollout resume FILE</code> where its files are.
        </p>
      )}
    </Card>
  );
}

function Now({ rollout }: { rollout: Rollout }) {
  const rows: [string, string][] = [["Started", time(rollout.beginTime).slice(0, 19)]];
  if (rollout.endTime !== undefined) rows.push(["Ended", time(rollout.endTime).slice(0, 19)]);
  if (under(rollout)) rows.push(["Last check", `${duration(Math.max(0, (Date.now() - new Date(rollout.lookTime ?? 0).getTime()) / 1000))} ago`]);
  if (seconds(rollout.watch) > 0) rows.push(["Watched", `${duration(rollout.watched)} of ${duration(rollout.watch)}`]);
  if (rollout.restarting && under(rollout)) rows.push(["Restarting", `${rollout.restarting}, for ${duration(Math.max(0, (Date.now() - new Date(rollout.restartTime ?? 0).getTime()) / 1000))}`]);
  if (rollout.controller) rows.push(["Controller", rollout.controller]);
  for (const one of rollout.problems ?? []) rows.push(["Problem at start", one]);
  return (
    <Card title="Status" actions={<CopyAs cli="syncpoint rollout status rollout.yaml" method="Admin.GetRollout" request={{}} />}>
      <Facts rows={rows} />
    </Card>
  );
}

const FIGURES: [string, string, (value: number) => string][] = [
  ["calls", "Calls", count],
  ["errors", "Errors", count],
  ["redelivered", "Redelivered", count],
  ["publish_p99_s", "Publish latency, 99th percentile", duration],
];

function Compared({ rollout }: { rollout: Rollout }) {
  const figures = rollout.figures ?? {};
  const shares = Object.entries(rollout.shares ?? {});
  const shown = (key: string, write: (value: number) => string): string => (figures[key] === undefined ? "–" : write(figures[key]));
  const share = (side: string): string => {
    const calls = figures[`${side}_calls`] ?? 0;
    return calls === 0 ? "–" : `${compact(((figures[`${side}_errors`] ?? 0) / calls) * 100)}%`;
  };
  return (
    <Card title="Release compared with the rest" note="same time window" flush>
      {Object.keys(figures).length === 0 ? (
        <Empty>This step compares nothing.</Empty>
      ) : (
        <div className="scroll" tabIndex={0} role="group" aria-label="Release compared with the rest">
          <table>
            <thead>
              <tr>
                <th>Metric</th>
                <th className="right">Release</th>
                <th className="right">Rest</th>
              </tr>
            </thead>
            <tbody>
              {FIGURES.map(([key, title, write]) => (
                <tr key={key}>
                  <td>{title}</td>
                  <td className="right">{shown(`released_${key}`, write)}</td>
                  <td className="right">{shown(`others_${key}`, write)}</td>
                </tr>
              ))}
              <tr>
                <td>Failed calls</td>
                <td className="right">{share("released")}</td>
                <td className="right">{share("others")}</td>
              </tr>
            </tbody>
          </table>
        </div>
      )}
      {shares.length > 0 && (
        <p className="muted padded">
          The release handles {shares.map(([role, part]) => `${Math.round(part * 100)}% of ${role}`).join(", ")}.
        </p>
      )}
    </Card>
  );
}

function Story({ rollout }: { rollout: Rollout }) {
  return (
    <Card title="History" note="newest first">
      <ol className="story">
        {[...(rollout.events ?? [])].reverse().map((one, index) => (
          <li key={index}>
            <time className="muted">{time(one.time).slice(0, 19)}</time> <span>{one.text}</span>
          </li>
        ))}
      </ol>
    </Card>
  );
}

function Abort({ rollout, onClose }: { rollout: Rollout; onClose: () => void }) {
  const [by, setBy] = useState("");
  const [reason, setReason] = useState("");
  const queries = useQueryClient();
  const request = { by, reason };
  return (
    <Confirm
      title={`Abort ${rollout.name}?`}
      text="All processes return to their previous version, production first. The controller starts at its next check. No messages are lost."
      action="Abort"
      dangerous
      disabled={by.trim() === "" || reason.trim() === ""}
      onClose={onClose}
      run={() => call("Admin.AbortRollout", request).then(() => queries.invalidateQueries({ queryKey: rolloutQuery.queryKey }))}
    >
      <Field label="Your name">{(id) => <input id={id} value={by} autoComplete="name" onChange={(event) => setBy(event.target.value)} />}</Field>
      <Field label="Reason">{(id) => <input id={id} value={reason} onChange={(event) => setReason(event.target.value)} />}</Field>
      <CopyAs cli={`syncpoint rollout abort rollout.yaml --reason ${shell(reason || "REASON")}`} method="Admin.AbortRollout" request={request} />
    </Confirm>
  );
}

function NoneYet() {
  return (
    <Card title="No rollouts yet">
      <p>A rollout brings a new version or new settings to this cluster in steps, compares each step with the processes that still run the old ones, and rolls back automatically if the new ones do worse. To start one:</p>
      <pre className="code">{"syncpoint rollout plan rollout.yaml\nsyncpoint rollout start rollout.yaml"}</pre>
    </Card>
  );
}
