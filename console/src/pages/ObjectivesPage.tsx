// Objectives: what is promised, what of each error budget is left, how fast it goes, and where that comes from.

import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";

import { type Alert, type BurnRule, firingQuery, type HistoryPart, historyQuery, slaQuery, type Sli, type Slo, slisQuery, slosQuery } from "../api/monitor";
import { compact, count, duration, seconds } from "../lib/format";
import { BudgetBar, budgetText, budgetTone, measured } from "../ui/Budgets";
import { CopyAs } from "../ui/CopyAs";
import { NoMonitor, Runbook } from "../ui/NoMonitor";
import { Badge, Card, Empty, Loading, Page, Problem } from "../ui/parts";
import { Table } from "../ui/Table";

const route = getRouteApi("/objectives");
const HOUR_S = 3600;

export const percent = (share: number): string => `${Number((share * 100).toPrecision(6)).toLocaleString("en", { maximumFractionDigits: share > 0.99 ? 4 : 2 })}%`;

export function ObjectivesPage() {
  const { slo: chosen } = route.useSearch();
  const go = route.useNavigate();
  const slos = useQuery(slosQuery);
  const slis = useQuery(slisQuery).data?.slis ?? [];
  const alerts = useQuery(firingQuery).data?.alerts ?? [];
  const rules = slos.data?.burnRules ?? [];
  const found = slos.data?.slos ?? [];
  const firesOf = (slo: Slo): Alert[] => alerts.filter((one) => one.labels?.["slo"] === slo.name);
  const missed = found.filter((one) => measured(one) && (one.budgetLeft ?? 0) <= 0).length;
  return (
    <Page title="Objectives" of={found.length === 0 ? undefined : missed === 0 ? `${found.length} objectives, all met` : `${missed} of ${found.length} objectives missed`}>
      {slos.error !== null && <NoMonitor error={slos.error} />}
      {slos.data === undefined && slos.error === null && <Loading />}
      {found.length > 0 && (
        <Card title="Error budgets" flush note="open an objective to see what consumes its budget" actions={<CopyAs cli="syncpoint slo list" method="Admin.ListSlos" request={{}} />}>
          <Table
            label="Error budgets"
            rows={found}
            rowKey={(slo) => slo.name}
            below={(slo) => slo.name === chosen && <Opened slo={slo} sli={slis.find((one) => one.name === slo.sli)} alerts={firesOf(slo)} />}
            columns={[
              {
                title: "Objective",
                cell: (slo) => (
                  <>
                    <button type="button" className="link" aria-expanded={slo.name === chosen} onClick={() => void go({ search: slo.name === chosen ? {} : { slo: slo.name }, replace: true })}>
                      {slo.name}
                    </button>{" "}
                    {firesOf(slo).map((one) => (
                      <Link key={one.alert} to="/alerts" search={{ alert: one.alert }}>
                        <Badge tone="bad">firing</Badge>
                      </Link>
                    ))}
                    <div className="muted small">{slo.objective}</div>
                  </>
                ),
              },
              { title: "Good events", cell: (slo) => (measured(slo) ? percent(slo.goodRatio ?? 0) : <span className="muted">–</span>) },
              {
                title: "Budget left",
                cell: (slo) => (
                  <span className={`budget-left ${budgetTone(slo)}`}>
                    <b>{budgetText(slo)}</b>
                    <BudgetBar slo={slo} />
                  </span>
                ),
              },
              ...rules.map((rule) => ({ title: `Burn ${duration(rule.longWindow)} / ${duration(rule.shortWindow)}`, right: true, cell: (slo: Slo) => <Burns slo={slo} rule={rule} /> })),
            ]}
          />
        </Card>
      )}
      {slos.data !== undefined && <Agreement />}
      {slis.length > 0 && <Indicators slis={slis} />}
    </Page>
  );
}

/** How many times as fast as allowed, in the long window and in the short one; loud where both are too fast. */
function Burns({ slo, rule }: { slo: Slo; rule: BurnRule }) {
  if (!measured(slo)) return <span className="muted">–</span>;
  const rate = (window: string) => slo.burnRates?.find((one) => seconds(one.window) === seconds(window))?.rate ?? 0;
  const [long, short] = [rate(rule.longWindow), rate(rule.shortWindow)];
  const over = long >= rule.rate && short >= rule.rate;
  return (
    <span className={over ? `burns ${rule.severity === "PAGE" ? "bad" : "warn"}` : long === 0 && short === 0 ? "muted" : ""} title={`Alerts at ${rule.rate} in both windows`}>
      {compact(long)} / {compact(short)}
    </span>
  );
}

function Opened({ slo, sli, alerts }: { slo: Slo; sli: Sli | undefined; alerts: Alert[] }) {
  const bad = Math.round((slo.events ?? 0) * (1 - (slo.goodRatio ?? 0)));
  return (
    <div className="opened-body">
      <p>{sli?.definition}</p>
      <p>
        {measured(slo) ? `${count(bad)} of ${count(Math.round(slo.events ?? 0))} events of the last ${duration(slo.window)} failed the objective; its budget is ${percent(1 - (slo.target ?? 0))}.` : "No events to measure in this window yet."}
      </p>
      <div className="row">
        {alerts.map((one) => (
          <Link key={one.alert} to="/alerts" search={{ alert: one.alert }}>
            {one.rule} firing
          </Link>
        ))}
        <Runbook link={slo.runbook} />
      </div>
      <h3>Budget consumption, last hour</h3>
      <div className="burners">
        {(sli?.parts ?? []).map((part) => (
          <Burners key={part.title} part={part} />
        ))}
      </div>
      {sli?.query !== undefined && (
        <details>
          <summary>PromQL query</summary>
          <pre className="code">{sli.query}</pre>
        </details>
      )}
    </div>
  );
}

const SHOWN = 8;

/** The largest parts of what is bad, by process and whatever else tells them apart. */
function Burners({ part }: { part: HistoryPart }) {
  const { title, family, labels = [], groupBy = [], quantile = 0 } = part;
  const found = useQuery(historyQuery({ family, labels, groupBy, quantile }, HOUR_S));
  const aged = title === "age" || quantile > 0;
  const stepS = found.data?.stepS ?? 0;
  const rows = (found.data?.series ?? [])
    .map(({ labels: of, values }) => {
      const known = values.filter((one): one is number => one !== null);
      return { name: groupBy.map((one) => of[one]).filter((one) => one).join(" · ") || "all", value: aged ? Math.max(0, ...known) : known.reduce((all, one) => all + one * stepS, 0) };
    })
    .filter((one) => one.value > 0)
    .sort((a, b) => b.value - a.value);
  return (
    <div>
      <h4>
        {title}
        {aged ? ", worst" : ", count"}
      </h4>
      {found.error !== null && <Problem error={found.error} />}
      {found.data === undefined && found.error === null && <Loading />}
      {found.data !== undefined && rows.length === 0 && <Empty>None.</Empty>}
      {rows.length > 0 && (
        <table>
          <tbody>
            {rows.slice(0, SHOWN).map((one) => (
              <tr key={one.name}>
                <td>{one.name}</td>
                <td className="right">{aged ? duration(one.value) : compact(one.value)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {rows.length > SHOWN && <p className="muted">and {rows.length - SHOWN} more</p>}
    </div>
  );
}

/** The last three months, the current one first, as UTC has them. */
function months(): string[] {
  const now = new Date();
  return [0, 1, 2].map((back) => new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back, 1)).toISOString().slice(0, 7));
}

function Agreement() {
  const [month, setMonth] = useState(months()[0] ?? "");
  const found = useQuery(slaQuery(month));
  const report = found.data;
  return (
    <Card
      title="SLA report"
      note={report === undefined ? "…" : `${report.complete ? "" : "month to date; "}measured for ${percent(report.measuredRatio ?? 0)} of the month`}
      flush
      actions={
        <>
          <select aria-label="Month" value={month} onChange={(event) => setMonth(event.target.value)}>
            {months().map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
          <CopyAs cli={`syncpoint slo report --month ${month}`} method="Admin.GetSlaReport" request={{ month }} />
        </>
      }
    >
      {found.error !== null && <Problem error={found.error} />}
      {report !== undefined && (
        <Table
          label="SLA report"
          rows={report.lines ?? []}
          rowKey={(line) => line.slo}
          columns={[
            {
              title: "Objective",
              cell: (line) => (
                <>
                  {line.slo} <span className="muted">{line.objective}</span>
                </>
              ),
            },
            { title: "Promised", right: true, cell: (line) => percent(line.promised) },
            { title: "Measured", right: true, cell: (line) => (measured(line) ? percent(line.measured ?? 0) : <span className="muted">no data</span>) },
            { title: "Events", right: true, cell: (line) => count(Math.round(line.events ?? 0)) },
            { title: "Credit", right: true, cell: (line) => ((line.creditPercent ?? 0) > 0 ? <Badge tone="bad">{line.creditPercent}%</Badge> : "0%") },
          ]}
        />
      )}
    </Card>
  );
}

function Indicators({ slis }: { slis: Sli[] }) {
  const value = (one: Sli): string => (!measured(one) ? (one.state === "NOT_APPLICABLE" ? "not applicable" : "no data") : one.unit === "ratio" ? percent(one.value ?? 0) : duration(one.value ?? 0));
  return (
    <Card title="Indicators" note="the measurements that objectives are set on" flush actions={<CopyAs cli="syncpoint slo list" method="Admin.ListSlis" request={{}} />}>
      <Table
        label="Indicators"
        rows={slis}
        rowKey={(one) => one.name}
        columns={[
          { title: "Indicator", cell: (one) => <span title={one.definition}>{one.title}</span> },
          { title: "Now", right: true, cell: (one) => <span className={measured(one) ? "" : "muted"}>{value(one)}</span> },
          { title: "Events", right: true, cell: (one) => (measured(one) ? count(Math.round(one.events ?? 0)) : "") },
          { title: "Window", right: true, style: "muted", cell: (one) => duration(one.window) },
        ]}
      />
    </Card>
  );
}
