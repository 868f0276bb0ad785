// Two weeks, from the file of the process that watches: one panel at a time, grouped as one likes, whose parts add up.

import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useState } from "react";

import { type History, historyQuery, type HistoryQuestion, historyRequest, type HistorySeries, type RangeName, RANGES, rangeSeconds } from "../api/monitor";
import { shell } from "../lib/copies";
import { bytes, compact, duration, time } from "../lib/format";
import { BY_NAMES, type GroupName, groupOf, type HistoryPanel, NAMED_PANELS, panelOf } from "../lib/panels";
import { CopyAs } from "../ui/CopyAs";
import { HistoryChart, type ShownLine, TONES } from "../ui/HistoryChart";
import { NoMonitor } from "../ui/NoMonitor";
import { Card, Empty, Field, Loading, Page, Problem } from "../ui/parts";

const route = getRouteApi("/history");

export function HistoryPage() {
  const search = route.useSearch();
  const go = route.useNavigate();
  const panel = panelOf(search.panel, search.family);
  const range: RangeName = search.range ?? "1h";
  const by: GroupName = panel.groups.includes(search.by ?? "total") ? (search.by ?? "total") : "total";
  const change = (changed: Partial<typeof search>) => void go({ search: { ...search, ...changed }, replace: true });
  return (
    <Page title="History" of="Metrics of the last two weeks">
      <div className="filters bare">
        <Field label="Metric">
          {(id) => (
            <select id={id} value={search.family === undefined ? panel.name : "family"} onChange={(event) => change({ panel: event.target.value, family: event.target.value === "family" ? panel.questions[0]?.family : undefined })}>
              {NAMED_PANELS.map((one) => (
                <option key={one.name} value={one.name}>
                  {one.title}
                </option>
              ))}
              <option value="family">Another metric …</option>
            </select>
          )}
        </Field>
        {search.family !== undefined && (
          <Field label="Metric name">
            {(id) => <FamilyInput key={search.family} id={id} family={search.family ?? ""} onChange={(family) => change({ family })} />}
          </Field>
        )}
        {panel.groups.length > 1 && (
          <Field label="Group by">
            {(id) => (
              <select id={id} value={by} onChange={(event) => change({ by: event.target.value as GroupName })}>
                {panel.groups.map((one) => (
                  <option key={one} value={one}>
                    {BY_NAMES[one]}
                  </option>
                ))}
              </select>
            )}
          </Field>
        )}
        <div className="segments" role="group" aria-label="Time">
          {RANGES.map(([name, words]) => (
            <button key={name} type="button" aria-pressed={name === range} onClick={() => change({ range: name })}>
              {words}
            </button>
          ))}
        </div>
        {search.only !== undefined && (
          <button type="button" className="quiet" onClick={() => change({ only: undefined })}>
            {search.only} ✕<span className="visually-hidden"> show all</span>
          </button>
        )}
      </div>
      {panel.together ? <Together panel={panel} range={range} /> : <OnePanel panel={panel} by={by} range={range} only={search.only} pick={(only) => change({ only, by: "total" })} />}
    </Page>
  );
}

function FamilyInput({ id, family, onChange }: { id: string; family: string; onChange: (family: string) => void }) {
  const [text, setText] = useState(family);
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault();
        onChange(text.trim());
      }}
    >
      <input id={id} value={text} size={38} spellCheck={false} onChange={(event) => setText(event.target.value)} />
      <button type="submit">Show</button>
    </form>
  );
}

/** How a number of a panel is written. */
export function writer(panel: HistoryPanel, history: History | undefined): (value: number) => string {
  const unit = panel.unit ?? history?.unit ?? "";
  if (unit.startsWith("bytes")) return (value) => bytes(value) + unit.slice(5);
  if (unit === "seconds") return (value) => (value === 0 ? "0" : duration(value));
  if (unit === "seconds/s") return (value) => `${compact(value * 100)}%`;
  return (value) => compact(value) + (unit.endsWith("/s") ? "/s" : "");
}

const mean = (values: (number | null)[]): number => {
  const known = values.filter((one): one is number => one !== null);
  return known.length === 0 ? 0 : known.reduce((all, one) => all + one, 0) / known.length;
};

const lastKnown = (values: (number | null)[]): number | null => values.findLast((one) => one !== null) ?? null;

interface Part {
  label: string;
  values: (number | null)[];
  of: HistorySeries | null;
}

/** The largest parts, and the sum of all others, so that they still add up. */
function parts(history: History, labels: readonly string[], adds: boolean): Part[] {
  const all = history.series.map((one) => ({ label: labels.map((name) => one.labels[name]).filter((text) => text).join(" / ") || (labels.length === 0 ? "all" : "(none)"), values: one.values, of: one }));
  all.sort((a, b) => mean(b.values) - mean(a.values));
  if (all.length <= TONES) return all;
  const rest = all.slice(TONES - 1);
  if (!adds) return all.slice(0, TONES);
  const values = history.times.map((_, index) => rest.reduce<number | null>((sum, one) => (one.values[index] == null ? sum : (sum ?? 0) + (one.values[index] ?? 0)), null));
  return [...all.slice(0, TONES - 1), { label: `${rest.length} others`, values, of: null }];
}

function OnePanel({ panel, by, range, only, pick }: { panel: HistoryPanel; by: GroupName; range: RangeName; only: string | undefined; pick: (only: string) => void }) {
  const [first] = panel.questions as [HistoryQuestion];
  const labels = groupOf(by);
  const where = [...(first.labels ?? []), ...(only === undefined ? [] : only.split(",").filter((one) => one.includes("=")))];
  const question: HistoryQuestion = { ...first, labels: where, groupBy: [...labels] };
  const rangeS = rangeSeconds(range);
  const found = useQuery(historyQuery(question, rangeS));
  const total = useQuery({ ...historyQuery({ ...first, labels: where }, rangeS), enabled: panel.adds && labels.length > 0 });
  const [at, setAt] = useState<number | null>(null);
  const history = found.data;
  const shown = useMemo(() => (history === undefined ? [] : parts(history, labels, panel.adds)), [history, by]);
  const write = writer(panel, history);
  const empty = shown.every((one) => lastKnown(one.values) === null);
  const totals = useMemo(() => new Map(total.data?.times.map((time, index) => [time, total.data.series[0]?.values[index] ?? null])), [total.data]);
  const whole = total.data === undefined || history === undefined ? undefined : history.times.map((time) => totals.get(time) ?? null);
  const there = at ?? null;
  return (
    <Card
      title={panel.title}
      note={history === undefined ? "…" : `${panel.note === undefined ? "" : `${panel.note}; `}one point per ${duration(history.stepS)}${there === null || history.times[there] === undefined ? "" : `; at ${time(new Date(history.times[there] * 1000).toISOString()).slice(0, 16)}`}`}
      actions={<CopyAs cli={cliOf(question, rangeS)} method="Admin.QueryHistory" request={historyRequest(question, rangeS)} />}
    >
      {found.error !== null && <NoMonitor error={found.error} />}
      {history === undefined && found.error === null && <Loading />}
      {history !== undefined && empty && found.error === null && <Empty>No data in this time range. Choose a longer range or another metric.</Empty>}
      {history !== undefined && !empty && (
        <>
          <HistoryChart times={history.times} lines={shown} stacked={panel.adds} label={`${panel.title}, ${BY_NAMES[by]}, over ${range}`} shown={write} onHover={setAt} height={260} />
          <div className="scroll" tabIndex={0} role="group" aria-label="Parts">
            <table className="parts">
              <thead>
                <tr>
                  <th>{labels.length === 0 ? "Series" : `By ${BY_NAMES[by]}`}</th>
                  <th className="right">{there === null ? "Latest" : "At cursor"}</th>
                  <th className="right">Average</th>
                  {panel.adds && <th className="right">Share</th>}
                </tr>
              </thead>
              <tbody>
                {shown.map((one, index) => (
                  <tr key={one.label}>
                    <td>
                      <i className={`swatch swatch-${(index % TONES) + 1}`} aria-hidden="true" />
                      {labels.length > 0 && one.of !== null ? (
                        <button type="button" className="link" title="Show only this series" onClick={() => pick(labels.map((name) => `${name}=${one.of?.labels[name] ?? ""}`).join(","))}>
                          {one.label}
                        </button>
                      ) : (
                        one.label
                      )}
                    </td>
                    <td className="right">{written(there === null ? lastKnown(one.values) : (one.values[there] ?? null), write)}</td>
                    <td className="right">{write(mean(one.values))}</td>
                    {panel.adds && <td className="right">{share(mean(one.values), shown)}</td>}
                  </tr>
                ))}
              </tbody>
              {panel.adds && labels.length > 0 && whole !== undefined && (
                <tfoot>
                  <tr>
                    <td>Total, queried separately</td>
                    <td className="right">{written(there === null ? lastKnown(whole) : (whole[there] ?? null), write)}</td>
                    <td className="right">{write(mean(whole))}</td>
                    <td className="right">{addsUp(shown, whole) ? "matches sum" : "differs from sum"}</td>
                  </tr>
                </tfoot>
              )}
            </table>
          </div>
        </>
      )}
    </Card>
  );
}

const written = (value: number | null, write: (value: number) => string): string => (value === null ? "–" : write(value));

function share(value: number, all: Part[]): string {
  const sum = all.reduce((total, one) => total + mean(one.values), 0);
  return sum === 0 ? "" : `${Math.round((value / sum) * 100)}%`;
}

/** Step by step, but for the newest two, which were asked for a moment apart. */
function addsUp(all: ShownLine[], whole: (number | null)[]): boolean {
  return whole.slice(0, -2).every((value, index) => {
    if (value === null) return true;
    const sum = all.reduce((total, one) => total + (one.values[index] ?? 0), 0);
    return Math.abs(sum - value) <= 1e-6 * Math.max(1, Math.abs(value));
  });
}

function cliOf(question: HistoryQuestion, rangeS: number): string {
  const query = new URLSearchParams([["family", question.family], ...(question.labels ?? []).map((one): [string, string] => ["labels", one]), ...(question.groupBy ?? []).map((one): [string, string] => ["groupBy", one])]);
  if (question.quantile !== undefined && question.quantile > 0) query.set("quantile", String(question.quantile));
  return `curl -s ${shell(`${location.origin}/admin/v1/history?${query.toString()}`)}   # the last ${duration(rangeS)}: add startTime=`;
}

/** Several questions of one panel, each a chart of its own, below one time. */
function Together({ panel, range }: { panel: HistoryPanel; range: RangeName }) {
  return (
    <Card title={panel.title} note={panel.note}>
      <div className="small-charts">
        {panel.questions.map((one) => (
          <Small key={one.title} question={one} range={range} panel={panel} />
        ))}
      </div>
    </Card>
  );
}

function Small({ question, range, panel }: { question: HistoryPanel["questions"][number]; range: RangeName; panel: HistoryPanel }) {
  const found = useQuery(historyQuery(question, rangeSeconds(range)));
  const history = found.data;
  const write = writer({ ...panel, ...(question.unit === undefined ? {} : { unit: question.unit }) }, history);
  const lines = useMemo((): ShownLine[] => (history === undefined ? [] : question.largest ? [largestOf(history)] : history.series.map((one) => ({ label: Object.values(one.labels).join(" / ") || (question.title ?? question.family), values: one.values }))), [history]);
  const newest = lines.map((one) => lastKnown(one.values)).find((one) => one !== null) ?? null;
  return (
    <figure>
      <figcaption>
        {question.title} <b>{lines.length === 1 && newest !== null ? write(newest) : ""}</b>
      </figcaption>
      {found.error !== null && <Problem error={found.error} />}
      <HistoryChart times={history?.times ?? []} lines={lines} stacked={false} label={`${question.title} over ${range}`} shown={write} height={120} />
    </figure>
  );
}

/** What each process says of the same thing: the largest of them. */
function largestOf(history: History): ShownLine {
  const values = history.times.map((_, index) => {
    const known = history.series.map((one) => one.values[index]).filter((one): one is number => one != null);
    return known.length === 0 ? null : Math.max(...known);
  });
  return { label: "largest", values };
}
