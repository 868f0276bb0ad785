// A chart of the last hour: what history kept, and from the moment the page was opened what is live.

import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";

import { serves } from "../api/client";
import { type History, historyQuery } from "../api/monitor";
import { Chart } from "./Chart";
import { Card } from "./parts";

const HOUR_S = 3600;

export interface FilledLine {
  label: string;
  tone: string;
  family: string;
  /** As history is asked for it, such as topic=orders. */
  labels?: string[];
  /** What is live. */
  points: [number, number][];
}

/** Samples of history that end before the first live one. */
function before(history: History | undefined, live: [number, number][]): [number, number][] {
  const first = live[0]?.[0] ?? Number.POSITIVE_INFINITY;
  const values = history?.series[0]?.values ?? [];
  return values.flatMap((value, index): [number, number][] => {
    const at = (history?.times[index] ?? 0) + (history?.stepS ?? 0);
    return value === null || at >= first ? [] : [[at, value]];
  });
}

export function FilledChart({ title, label, lines, unit, height }: { title: string; label: string; lines: FilledLine[]; unit?: string; height?: number }) {
  const found = useQueries({
    queries: lines.map(({ family, labels = [] }) => ({ ...historyQuery({ family, labels }, HOUR_S), enabled: serves("Admin.QueryHistory"), retry: false, refetchInterval: false as const, staleTime: Number.POSITIVE_INFINITY, refetchOnMount: "always" as const })),
  });
  const known = found.some((one) => (one.data?.series.length ?? 0) > 0);
  const drawn = useMemo(
    () => lines.map(({ label: name, tone, points }, index) => ({ label: name, tone, points: [...before(found[index]?.data, points), ...points] })),
    [...lines.map((one) => one.points), ...found.map((one) => one.data)],
  );
  return (
    <Card title={title} note={known ? "last hour" : "since this page was opened; history keeps busier ones"}>
      <Chart lines={drawn} label={label} {...(known ? { spanS: HOUR_S } : {})} {...(unit === undefined ? {} : { unit })} {...(height === undefined ? {} : { height })} />
    </Card>
  );
}

/** Labels of history by which one topic or subscription is found. */
export const labelsOf = (name: string): string[] => {
  const [, project = "", kind = "", id = ""] = name.split("/");
  return [`project=${project}`, `${kind.replace(/s$/, "")}=${id}`];
};
