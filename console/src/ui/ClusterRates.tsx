// What a whole cluster does, from the looks of the process that watches over it: the last quarter of an hour.

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { serves } from "../api/client";
import { type History, historyQuery } from "../api/monitor";
import { compact, rate } from "../lib/format";
import { HistoryChart } from "./HistoryChart";
import { Card, Tile } from "./parts";

const SHOWN_S = 900;
export const RATES = [
  ["Published", "syncpoint_topic_messages_total"],
  ["Delivered", "syncpoint_subscription_messages_total"],
  ["Acknowledged", "syncpoint_subscription_acknowledged_total"],
] as const;

/** By the names above; undefined while nothing is known, or nobody watches. */
export function useClusterRates(inCluster: boolean): [string, History | undefined][] {
  const enabled = inCluster && serves("Admin.QueryHistory");
  const published = useQuery({ ...historyQuery({ family: RATES[0][1] }, SHOWN_S), enabled });
  const delivered = useQuery({ ...historyQuery({ family: RATES[1][1] }, SHOWN_S), enabled });
  const acknowledged = useQuery({ ...historyQuery({ family: RATES[2][1] }, SHOWN_S), enabled });
  return [published, delivered, acknowledged].map(({ data, error }, index) => [RATES[index]?.[0] ?? "", error === null ? data : undefined]);
}

const values = (history: History | undefined): (number | null)[] => history?.series[0]?.values ?? [];

export function ClusterTiles({ rates }: { rates: [string, History | undefined][] }) {
  return rates.map(([name, history]) => <Tile key={name} label={name} value={rate(values(history).findLast((one) => one !== null) ?? null)} note="all processes" />);
}

export function ClusterChart({ rates }: { rates: [string, History | undefined][] }) {
  const [, first] = rates[0] ?? [];
  const times = first?.times ?? [];
  const lines = useMemo(
    () =>
      rates.map(([label, history]) => {
        const known = new Map(history?.times.map((time, index) => [time, values(history)[index] ?? null]));
        return { label, values: times.map((time) => known.get(time) ?? null) };
      }),
    rates.map(([, history]) => history),
  );
  return (
    <Card title="Messages per second" note="all processes, last 15 minutes">
      <figure className="chart">
        <HistoryChart times={times} lines={lines} stacked={false} label="Messages per second over the last 15 minutes" shown={(value) => `${compact(value)}/s`} height={190} />
        <figcaption>
          {rates.map(([label], index) => (
            <span key={label}>
              <i className={`swatch swatch-${index + 1}`} aria-hidden="true" />
              {label.toLowerCase()}
            </span>
          ))}
        </figcaption>
      </figure>
    </Card>
  );
}
