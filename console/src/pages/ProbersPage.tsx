// The prober matrix: every prober at every endpoint, its three metrics each, and what was last wrong.

import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";

import { historyQuery, type ProberEntry, type ProberMetric, probersQuery, type RangeName, RANGES, rangeSeconds } from "../api/monitor";
import { compact, count, duration, time } from "../lib/format";
import { CopyAs } from "../ui/CopyAs";
import { HistoryChart } from "../ui/HistoryChart";
import { NoMonitor } from "../ui/NoMonitor";
import { Badge, Card, Empty, Facts, Loading, Page, Problem, type Tone } from "../ui/parts";

const route = getRouteApi("/probers");
const MEASURES = ["success", "duration", "correctness"] as const;
/** Probers run once a minute unless they are told otherwise: what is older is not what is now. */
const STALE_S = 300;

const MARKS: Record<ProberMetric["verdict"], [sign: string, word: string, tone: Tone]> = {
  EXPECTED: ["✓", "passed", "good"],
  UNEXPECTED: ["✕", "failed", "bad"],
  UNKNOWN: ["?", "unknown", "warn"],
  VERDICT_UNSPECIFIED: ["?", "unknown", "warn"],
};

const metricOf = (entry: ProberEntry, measure: string): ProberMetric | undefined => entry.metrics?.find((one) => one.measure === measure);

const ageOf = (at: string | undefined): number => (at === undefined ? Infinity : (Date.now() - new Date(at).getTime()) / 1000);

export function toneOf(entry: ProberEntry): Tone {
  const verdicts = (entry.metrics ?? []).map((one) => one.verdict);
  if (verdicts.includes("UNEXPECTED")) return "bad";
  if (verdicts.length === 0 || ageOf(entry.lastRun) > STALE_S || verdicts.some((one) => one !== "EXPECTED")) return "warn";
  return "good";
}

export function ProbersPage() {
  const search = route.useSearch();
  const go = route.useNavigate();
  const found = useQuery(probersQuery);
  const entries = found.data?.probers ?? [];
  const endpoints = [...new Set(entries.map((one) => one.endpoint))].sort();
  const probers = [...new Map(entries.map((one) => [one.prober, one])).values()].sort((a, b) => Number(a.prober.slice(1)) - Number(b.prober.slice(1)));
  const known = entries.flatMap((one) => one.metrics ?? []);
  const wrong = known.filter((one) => one.verdict === "UNEXPECTED").length;
  const chosen = entries.find((one) => one.prober === search.prober && one.endpoint === search.endpoint);
  return (
    <Page title="Probers" of={entries.length === 0 ? "Test clients that call the service continuously" : wrong === 0 ? `no failures in ${known.length} checks` : `${wrong} of ${known.length} checks failed`}>
      {found.error !== null && <NoMonitor error={found.error} />}
      {found.data === undefined && found.error === null && <Loading />}
      {(found.data?.unknown ?? []).map((one) => (
        <p key={one} className="note warn">
          Unknown: {one}
        </p>
      ))}
      {found.data !== undefined && entries.length === 0 && <NotSetUp />}
      {entries.length > 0 && (
        <Card title="Results" note="latest run at each endpoint: success, duration, correctness; select a cell for details" flush actions={<CopyAs cli={`syncpoint probers run --once ${endpoints.map((one) => `--endpoint ${one}`).join(" ")}`} method="Admin.ListProbers" request={{}} />}>
          <div className="scroll" tabIndex={0} role="group" aria-label="Results">
            <table className="matrix">
              <thead>
                <tr>
                  <th>Prober</th>
                  {endpoints.map((one) => (
                    <th key={one}>{one}</th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {probers.map((row) => (
                  <tr key={row.prober}>
                    <th scope="row">
                      {row.prober} <span className="muted">{row.title}</span>
                    </th>
                    {endpoints.map((endpoint) => {
                      const entry = entries.find((one) => one.prober === row.prober && one.endpoint === endpoint);
                      return <td key={endpoint}>{entry === undefined ? <span className="muted">–</span> : <Cell entry={entry} pressed={entry === chosen} onClick={() => void go({ search: entry === chosen ? {} : { prober: entry.prober, endpoint }, replace: true })} />}</td>;
                    })}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      )}
      {chosen !== undefined && <Details entry={chosen} range={search.range ?? "6h"} setRange={(range) => void go({ search: { ...search, range }, replace: true })} />}
      {chosen === undefined && <Failures entries={entries} />}
    </Page>
  );
}

function Cell({ entry, pressed, onClick }: { entry: ProberEntry; pressed: boolean; onClick: () => void }) {
  const took = metricOf(entry, "duration")?.value;
  const age = ageOf(entry.lastRun);
  const said = MEASURES.map((one) => `${one} ${MARKS[metricOf(entry, one)?.verdict ?? "UNKNOWN"][1]}`).join(", ");
  return (
    <button type="button" className={`cell ${toneOf(entry)}`} aria-pressed={pressed} onClick={onClick}>
      <span className="visually-hidden">
        {entry.prober} at {entry.endpoint}: {entry.lastRun === undefined ? "has not run yet" : said}
      </span>
      <span className="marks" aria-hidden="true">
        {MEASURES.map((one) => {
          const [sign, , tone] = MARKS[metricOf(entry, one)?.verdict ?? "UNKNOWN"];
          return (
            <i key={one} className={tone}>
              {sign}
            </i>
          );
        })}
      </span>
      <span className="took">{took === undefined ? "–" : duration(took)}</span>
      <span className="muted small">{entry.lastRun === undefined ? "not yet" : age > STALE_S ? `${duration(age)} ago` : ""}</span>
    </button>
  );
}

function Details({ entry, range, setRange }: { entry: ProberEntry; range: RangeName; setRange: (range: RangeName) => void }) {
  const failures = [...(entry.failures ?? [])].reverse();
  return (
    <Card title={`${entry.prober} ${entry.title} at ${entry.endpoint}`} note={`run by ${entry.process}`}>
      <div className="columns">
        <div>
          <Facts
            rows={[
              ["Runs", count(entry.runs)],
              ["Latest run", entry.lastRun === undefined ? "not yet" : `${time(entry.lastRun).slice(0, 19)}, ${duration(ageOf(entry.lastRun))} ago`],
              ["Tests", (entry.planes ?? []).map((one) => `${one} plane`).join(", ")],
              ...Object.entries(entry.steps ?? {}).map(([name, took]): [string, string] => [`Step ${name}`, duration(took)]),
            ]}
          />
        </div>
        <div className="scroll" tabIndex={0} role="group" aria-label="Metrics">
          <table>
            <thead>
              <tr>
                <th>Metric</th>
                <th>Result</th>
                <th className="right">Value</th>
                <th className="right">Limit</th>
              </tr>
            </thead>
            <tbody>
              {(entry.metrics ?? []).map((one) => (
                <tr key={one.name}>
                  <td>
                    {one.name}
                    {one.text !== undefined && one.text !== "" && <div className="small wrapped">{one.text}</div>}
                  </td>
                  <td>
                    <Badge tone={MARKS[one.verdict][2]}>{MARKS[one.verdict][1]}</Badge>
                  </td>
                  <td className="right">{one.value === undefined ? "–" : one.measure === "duration" ? duration(one.value) : compact(one.value)}</td>
                  <td className="right">{one.limit === undefined ? "–" : one.measure === "duration" ? duration(one.limit) : compact(one.limit)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </div>
      <div className="row between">
        <h3>Step durations</h3>
        <div className="segments" role="group" aria-label="Time">
          {RANGES.map(([name, words]) => (
            <button key={name} type="button" aria-pressed={name === range} onClick={() => setRange(name)}>
              {words}
            </button>
          ))}
        </div>
      </div>
      <Steps entry={entry} range={range} />
      <h3>Latest failures</h3>
      {failures.length === 0 ? <Empty>None since the prober started.</Empty> : <FailureList failures={failures.map((one) => ({ ...one, of: null }))} />}
      <Link to="/history" search={{ panel: "probed", by: "prober" }}>
        Messages published and received by probers
      </Link>
    </Card>
  );
}

function Steps({ entry, range }: { entry: ProberEntry; range: RangeName }) {
  const question = { family: "syncpoint_prober_step_newest_seconds", labels: [`prober=${entry.prober}`, `endpoint=${entry.endpoint}`], groupBy: ["step"] };
  const found = useQuery(historyQuery(question, rangeSeconds(range)));
  const lines = (found.data?.series ?? []).map((one) => ({ label: one.labels["step"] ?? "", values: one.values }));
  return (
    <figure className="chart">
      {found.error !== null && <Problem error={found.error} />}
      <HistoryChart times={found.data?.times ?? []} lines={lines} stacked={false} label={`Steps of ${entry.prober} over ${range}`} shown={(value) => (value === 0 ? "0" : duration(value))} height={150} />
      <figcaption>
        {lines.map((line, index) => (
          <span key={line.label}>
            <i className={`swatch swatch-${index + 1}`} aria-hidden="true" />
            {line.label}
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

function FailureList({ failures }: { failures: { time?: string; text: string; of: string | null }[] }) {
  return (
    <ol className="story">
      {failures.map((one, index) => (
        <li key={index}>
          <time className="muted">{time(one.time).slice(0, 19)}</time>{" "}
          <span>
            {one.of !== null && <b>{one.of}: </b>}
            {one.text}
          </span>
        </li>
      ))}
    </ol>
  );
}

function Failures({ entries }: { entries: ProberEntry[] }) {
  if (entries.length === 0) return null;
  const all = entries
    .flatMap((entry) => (entry.failures ?? []).map((one) => ({ ...one, of: `${entry.prober} at ${entry.endpoint}` })))
    .sort((a, b) => (b.time ?? "").localeCompare(a.time ?? ""))
    .slice(0, 20);
  return <Card title="Latest failures">{all.length === 0 ? <Empty>None since the probers started.</Empty> : <FailureList failures={all} />}</Card>;
}

function NotSetUp() {
  const here = location.host;
  return (
    <Card title="No probers configured">
      <p>Probers detect what a server's own metrics cannot show, such as an unreachable endpoint or a missing message. Run them on another machine, one endpoint per proxy:</p>
      <pre className="code">syncpoint probers run --endpoint {here} --metrics 0.0.0.0:9180</pre>
      <p>
        Then add them to the monitor's file (<code>syncpoint serve --monitor FILE</code>, or <code>monitor</code> in <code>cluster.yaml</code>):
      </p>
      <pre className="code">{'targets:\n  - {url: "http://PROBER-HOST:9180/metrics", labels: {process: prober-1}}'}</pre>
      <p className="muted">Results appear here within ten seconds after the monitor loads the file.</p>
    </Card>
  );
}
