// What a failure would do to acknowledged messages: calls of the page "At risk".

import { queryOptions } from "@tanstack/react-query";

import { call } from "./client";
import type { Int64 } from "./types";

/** As GetAtRisk names what may vanish, and as addresses of the page do. */
export const FAILURE_KINDS = { disk: "disks", process: "processes", cluster: "clusters", zone: "zones", region: "regions" } as const;
export type FailureKind = keyof typeof FAILURE_KINDS;

export interface RiskRange {
  chain?: Int64;
  source?: Int64;
  firstOffset?: Int64;
  lastOffset?: Int64;
  subscription?: string;
}

export interface RiskCount {
  messages?: Int64;
  bytes?: Int64;
  oldestPublishTime?: string;
  ranges?: RiskRange[];
  rangesTotal?: Int64;
}

export const OUTCOMES = ["lost", "unavailable", "twice"] as const;
export type Outcome = (typeof OUTCOMES)[number];
type Counts = { [outcome in Outcome]?: RiskCount };

export interface TopicRisk extends Counts {
  topic: string;
}

export interface Failure extends Counts {
  kind: string;
  name: string;
  topics?: TopicRisk[];
  stopped?: string[];
  facts?: Int64;
}

export interface AtRisk {
  failures?: Failure[];
  unknown?: string[];
}

/** `disk:/disks/a`: one thing that vanishes, as an address of the page has it; null: it is none. */
export function goneOf(text: string): { kind: FailureKind; name: string } | null {
  const at = text.indexOf(":");
  const kind = text.slice(0, at);
  return at > 0 && kind in FAILURE_KINDS && text.length > at + 1 ? { kind: kind as FailureKind, name: text.slice(at + 1) } : null;
}

/** As the method takes it: nothing named is each by itself. */
export function requestFor(gone: string[]): Record<string, string[]> {
  const request: Record<string, string[]> = {};
  for (const text of gone) {
    const one = goneOf(text);
    if (one !== null) (request[FAILURE_KINDS[one.kind]] ??= []).push(one.name);
  }
  return request;
}

export const atRiskQuery = (gone: string[]) =>
  queryOptions({
    queryKey: ["at-risk", gone],
    queryFn: ({ signal }) => call<AtRisk>("Admin.GetAtRisk", { ...requestFor(gone), rangesMax: gone.length === 0 ? 1 : 20 }, signal),
    refetchInterval: 10_000,
    staleTime: 2_000,
  });
