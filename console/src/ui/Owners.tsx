// Who had which chain open, and when: a row for each chain, a bar for each owner and epoch.

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { ApiError } from "../api/client";
import { type OwnerChange, ownershipsQuery, type RangeName, RANGES, rangeSeconds } from "../api/monitor";
import type { Chain } from "../api/types";
import { count, duration, num, time } from "../lib/format";
import { CopyAs } from "./CopyAs";
import { TONES } from "./HistoryChart";
import { Card, Empty, Problem } from "./parts";

const LISTED = 30;

export interface Held {
  owner: string;
  epoch: number;
  from: number;
  until: number;
  late: boolean;
}

/** Of the changes of one chain: who held it from when until when, within a time. */
export function heldOf(changes: OwnerChange[], begin: number, end: number): Held[] {
  const found = changes.map((one, index) => {
    const next = changes[index + 1];
    const from = Math.max(begin, new Date(one.time).getTime() / 1000);
    const until = next === undefined ? end : new Date(next.time).getTime() / 1000;
    return { owner: one.owner ?? "", epoch: num(one.epoch), from, until, late: one.late ?? false };
  });
  return found.filter((one) => one.until > one.from);
}

export function Owners({ chains }: { chains: Chain[] }) {
  const [range, setRange] = useState<RangeName>("1h");
  const found = useQuery(ownershipsQuery(range));
  const changes = found.data?.changes ?? [];
  const end = Date.now() / 1000;
  const kept = found.data?.keptSince === undefined ? 0 : new Date(found.data.keptSince).getTime() / 1000;
  const begin = Math.min(end - 60, Math.max(end - rangeSeconds(range), kept)); // nothing is known of what was before
  const numbers = [...new Set(changes.map((one) => one.chain ?? 0))].sort((a, b) => a - b);
  const owners = [...new Set(changes.map((one) => one.owner ?? "").filter((one) => one !== ""))].sort();
  const named = (number: number): string => chains.find((one) => (one.number ?? 0) === number)?.name ?? `chain ${number}`;
  const within = changes.filter((one) => new Date(one.time).getTime() / 1000 >= begin).reverse();
  const noMonitor = found.error instanceof ApiError && found.error.code === "FAILED_PRECONDITION";
  return (
    <Card
      title="Owners over time"
      note="each new owner raises the chain's epoch"
      actions={
        <>
          <div className="segments" role="group" aria-label="Time">
            {RANGES.map(([name, words]) => (
              <button key={name} type="button" aria-pressed={name === range} onClick={() => setRange(name)}>
                {words}
              </button>
            ))}
          </div>
          <CopyAs cli={`curl -s '${location.origin}/admin/v1/ownerships'`} method="Admin.ListOwnerships" request={{ startTime: new Date(begin * 1000).toISOString() }} />
        </>
      }
    >
      {noMonitor && <Empty>{(found.error as ApiError).message}</Empty>}
      {found.error !== null && !noMonitor && <Problem error={found.error} />}
      {found.data !== undefined && changes.length === 0 && <Empty>No ownership changes recorded yet.</Empty>}
      {numbers.length > 0 && (
        <>
          <div className="owners" role="img" aria-label={`Owners of ${numbers.length} chains over the last ${range}; the list below has the same data`}>
            {numbers.map((number) => (
              <div key={number} className="owners-row">
                <span className="owners-name" title={named(number)}>
                  {named(number)}
                </span>
                <span className="owners-bars">
                  {heldOf(
                    changes.filter((one) => (one.chain ?? 0) === number),
                    begin,
                    end,
                  ).map((held) => (
                    <i
                      key={`${held.from} ${held.epoch} ${held.owner}`}
                      className={held.owner === "" ? "nobody" : `swatch-${(owners.indexOf(held.owner) % TONES) + 1}`}
                      style={{ left: `${((held.from - begin) / (end - begin)) * 100}%`, width: `${((held.until - held.from) / (end - begin)) * 100}%` }}
                      title={`${held.owner || "no owner"}, epoch ${held.epoch}, for ${duration(held.until - held.from)}`}
                    />
                  ))}
                </span>
              </div>
            ))}
            <div className="owners-row">
              <span className="owners-name" />
              <span className="owners-axis muted small">
                <span>{time(new Date(begin * 1000).toISOString()).slice(0, 16)}</span>
                <span>now</span>
              </span>
            </div>
          </div>
          <p className="chart-legend">
            {owners.map((owner, index) => (
              <span key={owner}>
                <i className={`swatch swatch-${(index % TONES) + 1}`} aria-hidden="true" />
                {owner}
              </span>
            ))}
            {changes.some((one) => !one.owner) && (
              <span>
                <i className="swatch nobody" aria-hidden="true" />
                no owner
              </span>
            )}
          </p>
          <details>
            <summary>
              {count(within.length)} {within.length === 1 ? "change" : "changes"} in this time range
            </summary>
            <ol className="story">
              {within.slice(0, LISTED).map((one) => (
                <li key={`${one.time} ${one.chain ?? 0} ${one.epoch ?? 0}`}>
                  <time className="muted">{time(one.time)}</time>{" "}
                  <span>
                    {named(one.chain ?? 0)}: {one.owner ? `${one.owner}, epoch ${count(one.epoch)}` : "no owner"}
                    {one.late && <span className="muted"> (recorded then; it happened earlier, while no monitor was running)</span>}
                  </span>
                </li>
              ))}
            </ol>
            {within.length > LISTED && <p className="muted">and {within.length - LISTED} older changes</p>}
          </details>
        </>
      )}
    </Card>
  );
}
