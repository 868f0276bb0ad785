// What the process that watches over a server or a cluster knows: objectives, alerts, history, probers, owners.

import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { call, type Fields } from "./client";
import { callQuery } from "./queries";
import type { Int64 } from "./types";

export type MeasuredState = "STATE_UNSPECIFIED" | "MEASURED" | "NO_DATA" | "NOT_APPLICABLE";
export type Severity = "SEVERITY_UNSPECIFIED" | "TICKET" | "PAGE";

export interface HistoryPart {
  title: string;
  family: string;
  labels?: string[];
  groupBy?: string[];
  quantile?: number;
}

export interface Sli {
  name: string;
  title: string;
  definition: string;
  unit: string;
  window?: string;
  state?: MeasuredState;
  value?: number;
  events?: number;
  query?: string;
  parts?: HistoryPart[];
}

export interface Slo {
  name: string;
  sli: string;
  objective: string;
  target?: number;
  threshold?: number;
  window?: string;
  state?: MeasuredState;
  goodRatio?: number;
  events?: number;
  budgetLeft?: number;
  burnRates?: { window: string; rate?: number }[];
  runbook?: string;
}

export interface BurnRule {
  severity: Severity;
  rate: number;
  longWindow: string;
  shortWindow: string;
}

export interface Slos {
  slos?: Slo[];
  burnRules?: BurnRule[];
}

export interface SlaReport {
  month: string;
  complete?: boolean;
  measuredRatio?: number;
  lines?: { slo: string; objective: string; promised: number; measured?: number; events?: number; creditPercent?: number; state?: MeasuredState }[];
  creditPercent?: number;
}

export interface Alert {
  alert: string;
  rule: string;
  labels?: Record<string, string>;
  severity: Severity;
  state: "STATE_UNSPECIFIED" | "FIRING" | "ACKNOWLEDGED" | "RESOLVED";
  summary: string;
  runbook?: string;
  startTime?: string;
  acknowledgeTime?: string;
  acknowledgedBy?: string;
  resolveTime?: string;
  acknowledgeDeadline?: string;
  level?: number;
  notified?: string[];
  silenced?: boolean;
  /** What it follows from, in words, and as an alert once that is one. */
  follows?: string;
  cause?: string;
  events?: { time?: string; text: string }[];
}

export interface Silence {
  silence: string;
  rule?: string;
  labels?: Record<string, string>;
  endTime?: string;
  by?: string;
  comment?: string;
}

export interface OnCall {
  people?: { name: string; site?: string; ways?: string[] }[];
  sites?: { name: string; timeZone: string; hours: string; onCall?: boolean; people?: string[] }[];
  acknowledgeTime?: string;
}

export type Verdict = "VERDICT_UNSPECIFIED" | "UNKNOWN" | "EXPECTED" | "UNEXPECTED";

export interface ProberMetric {
  name: string;
  measure: string;
  verdict: Verdict;
  value?: number;
  limit?: number;
  text?: string;
}

export interface ProberEntry {
  prober: string;
  title: string;
  planes?: string[];
  endpoint: string;
  process: string;
  runs?: Int64;
  lastRun?: string;
  metrics?: ProberMetric[];
  steps?: Record<string, number>;
  failures?: { time?: string; text: string }[];
}

export interface OwnerChange {
  time: string;
  chain?: number;
  epoch?: Int64;
  owner?: string;
  late?: boolean;
}

export const slosQuery = callQuery<Slos>("Admin.ListSlos", {}, 10_000);
export const slisQuery = callQuery<{ slis?: Sli[] }>("Admin.ListSlis", {}, 10_000);
export const slaQuery = (month: string) => callQuery<SlaReport>("Admin.GetSlaReport", month === "" ? {} : { month });
export const firingQuery = callQuery<{ alerts?: Alert[] }>("Admin.ListAlerts", {}, 5_000);
export const silencesQuery = callQuery<{ silences?: Silence[] }>("Admin.ListSilences", {}, 10_000);
export const onCallQuery = callQuery<OnCall>("Admin.GetOnCall", {}, 60_000);
export const probersQuery = callQuery<{ probers?: ProberEntry[]; unknown?: string[] }>("Admin.ListProbers", {}, 10_000);

export const alertsQuery = queryOptions({
  queryKey: ["Admin.ListAlerts", "resolved"],
  queryFn: ({ signal }) => call<{ alerts?: Alert[] }>("Admin.ListAlerts", { resolved: true, pageSize: 200 }, signal),
  refetchInterval: 5_000,
});

export const RANGES = [
  ["1h", "1 h", 3600],
  ["6h", "6 h", 6 * 3600],
  ["1d", "1 day", 86_400],
  ["14d", "14 days", 14 * 86_400],
] as const;
export type RangeName = (typeof RANGES)[number][0];

export const rangeSeconds = (name: RangeName): number => RANGES.find(([one]) => one === name)?.[2] ?? 3600;

const ago = (seconds: number): string => new Date(Date.now() - seconds * 1000).toISOString();

export const ownershipsQuery = (range: RangeName) =>
  queryOptions({
    queryKey: ["Admin.ListOwnerships", range],
    queryFn: ({ signal }) => call<{ changes?: OwnerChange[]; keptSince?: string }>("Admin.ListOwnerships", { startTime: ago(rangeSeconds(range)) }, signal),
    refetchInterval: 10_000,
    placeholderData: keepPreviousData,
  });

/** A question to history, by the length of the time that is asked for. */
export interface HistoryQuestion {
  family: string;
  labels?: string[];
  groupBy?: string[];
  quantile?: number;
}

interface HistoryAnswer {
  startTime: string;
  step: string;
  kind: string;
  unit?: string;
  series?: { labels?: Record<string, string>; values?: (number | string)[] }[];
}

export interface HistorySeries {
  labels: Record<string, string>;
  /** One for each step; null: nothing was measured. */
  values: (number | null)[];
}

export interface History {
  times: number[];
  stepS: number;
  kind: string;
  unit: string;
  series: HistorySeries[];
}

const STEPS = 360;
/** Time in which nothing was measured yet is left out, but so many steps are always shown. */
const SHOWN_MIN = 30;

/** As a request: steps as long as 360 of them fill the time, and at least as long as samples are apart. */
export function historyRequest(question: HistoryQuestion, rangeS: number): Fields {
  const { family, labels = [], groupBy = [], quantile = 0 } = question;
  const step = Math.max(10, Math.round(rangeS / STEPS / 10) * 10);
  return { family, labels, groupBy, startTime: ago(rangeS), step: `${step}s`, ...(quantile > 0 ? { quantile } : {}) };
}

export const historyQuery = (question: HistoryQuestion, rangeS: number) =>
  queryOptions({
    queryKey: ["Admin.QueryHistory", question, rangeS],
    queryFn: async ({ signal }): Promise<History> => read(await call<HistoryAnswer>("Admin.QueryHistory", historyRequest(question, rangeS), signal)),
    refetchInterval: rangeS <= 6 * 3600 ? 10_000 : 60_000,
    placeholderData: keepPreviousData,
  });

function read(answer: HistoryAnswer): History {
  const begin = new Date(answer.startTime).getTime() / 1000;
  const stepS = Number(answer.step.replace(/s$/, ""));
  const series = (answer.series ?? []).map(({ labels = {}, values = [] }) => ({ labels, values: values.map((one) => (typeof one === "number" && Number.isFinite(one) ? one : null)) }));
  const steps = Math.max(0, ...series.map((one) => one.values.length));
  const measured = Array.from({ length: steps }, (_, index) => index).find((index) => series.some((one) => one.values[index] != null)) ?? 0;
  const first = Math.max(0, Math.min(measured, steps - SHOWN_MIN));
  for (const one of series) one.values = one.values.slice(first);
  return { times: Array.from({ length: steps - first }, (_, index) => begin + (first + index) * stepS), stepS, kind: answer.kind, unit: answer.unit ?? "", series };
}
