// Error budgets in a strip: what of each is left, and what fires.

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { ApiError, serves } from "../api/client";
import { firingQuery, type Slo, slosQuery } from "../api/monitor";
import { plural } from "../lib/format";
import type { Tone } from "./parts";

export const measured = (slo: { state?: string }): boolean => slo.state === "MEASURED";

export function budgetTone(slo: Slo): Tone {
  if (!measured(slo)) return "calm";
  const left = slo.budgetLeft ?? 0;
  return left <= 0 ? "bad" : left < 0.25 ? "warn" : "good";
}

export const budgetText = (slo: Slo): string => (measured(slo) ? `${Math.floor((slo.budgetLeft ?? 0) * 100)}%` : slo.state === "NOT_APPLICABLE" ? "not applicable" : "no data");

export function BudgetBar({ slo }: { slo: Slo }) {
  const share = measured(slo) ? Math.min(1, Math.max(0, slo.budgetLeft ?? 0)) : 0;
  return (
    <span className={`budget ${budgetTone(slo)}`} aria-hidden="true">
      <i style={{ width: `${share * 100}%` }} />
    </span>
  );
}

export function Budgets() {
  const here = serves("Admin.ListSlos");
  const slos = useQuery({ ...slosQuery, enabled: here });
  const alerts = useQuery({ ...firingQuery, enabled: here });
  if (!here || (slos.error instanceof ApiError && slos.error.code === "PERMISSION_DENIED")) return null;
  const firing = alerts.data?.alerts ?? [];
  const open = firing.filter((one) => one.state === "FIRING" && !one.silenced);
  return (
    <section className="card" aria-labelledby="budgets">
      <header>
        <h2 id="budgets">Error budgets</h2>
        <span className="muted">remaining over each objective's window</span>
        <div className="actions">
          {alerts.data !== undefined && (
            <Link to="/alerts" className={open.length > 0 ? "alarm" : "muted"}>
              {firing.length === 0 ? "No active alerts" : `${plural(firing.length, "active alert")}, ${open.length === 0 ? "all acknowledged" : `${open.length} unacknowledged`}`}
            </Link>
          )}
        </div>
      </header>
      {slos.error !== null && <p className="muted">{slos.error.message}</p>}
      <div className="budgets">
        {(slos.data?.slos ?? []).map((slo) => (
          <Link key={slo.name} to="/objectives" search={{ slo: slo.name }} title={slo.objective}>
            <span>{slo.name}</span>
            <b className={budgetTone(slo)}>{budgetText(slo)}</b>
            <BudgetBar slo={slo} />
          </Link>
        ))}
        {slos.data === undefined && slos.error === null && Array.from({ length: 10 }, (_, index) => <span key={index} className="budget-place" />)}
      </div>
    </section>
  );
}
