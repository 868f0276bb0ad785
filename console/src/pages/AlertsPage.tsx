// Alerts: what fires and whom it has gone to, what is over, what is silenced, who is on call.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { Fragment, useEffect, useState } from "react";

import { call } from "../api/client";
import { type Alert, alertsQuery, onCallQuery, type Silence, silencesQuery } from "../api/monitor";
import { usePermissions } from "../api/queries";
import { shell } from "../lib/copies";
import { duration, plural, time } from "../lib/format";
import { CopyAs } from "../ui/CopyAs";
import { NoMonitor, Runbook } from "../ui/NoMonitor";
import { Badge, Card, Confirm, Empty, Field, Loading, Page, Problem, type Tone } from "../ui/parts";

const route = getRouteApi("/alerts");
const UPDATE = "syncpoint.server.update";
const NAME = "syncpoint.name";

type Asked = { kind: "acknowledge"; alert: Alert } | { kind: "silence"; alert: Alert | null } | { kind: "unsilence"; silence: Silence };

export function AlertsPage() {
  const { alert: chosen } = route.useSearch();
  const alerts = useQuery(alertsQuery);
  const rights = usePermissions("server", [UPDATE]);
  const [asked, setAsked] = useState<Asked | null>(null);
  const firing = (alerts.data?.alerts ?? []).filter((one) => one.state !== "RESOLVED");
  const over = (alerts.data?.alerts ?? []).filter((one) => one.state === "RESOLVED");
  const alone = firing.filter((one) => !one.cause);
  const open = alone.filter((one) => one.state === "FIRING" && !one.silenced).length;
  const may = rights.has(UPDATE);
  return (
    <Page
      title="Alerts"
      of={alerts.data === undefined ? undefined : firing.length === 0 ? "no active alerts" : `${plural(alone.length, "active alert")}, ${open} unacknowledged${alone.length < firing.length ? `; ${firing.length - alone.length} more follow from them` : ""}`}
      actions={
        may &&
        alerts.data !== undefined && (
          <button type="button" onClick={() => setAsked({ kind: "silence", alert: null })}>
            Silence…
          </button>
        )
      }
    >
      {alerts.error !== null && <NoMonitor error={alerts.error} />}
      {alerts.data === undefined && alerts.error === null && <Loading />}
      {alerts.data !== undefined && (
        <>
          <Card title="Firing" flush actions={<CopyAs cli="syncpoint alerts list" method="Admin.ListAlerts" request={{}} />}>
            {firing.length === 0 ? <Empty>No active alerts. New alerts appear here within ten seconds.</Empty> : <Rows alerts={alone} following={firing} chosen={chosen} ask={may ? setAsked : null} />}
          </Card>
          <Silences ask={may ? setAsked : null} />
          <OnCallCard />
          <Card title="Resolved" note="the latest 200" flush actions={<CopyAs cli="syncpoint alerts history --limit 200" method="Admin.ListAlerts" request={{ resolved: true, pageSize: 200 }} />}>
            {over.length === 0 ? <Empty>No resolved alerts yet.</Empty> : <Rows alerts={over} chosen={chosen} ask={null} />}
          </Card>
        </>
      )}
      {asked?.kind === "acknowledge" && <Acknowledge alert={asked.alert} onClose={() => setAsked(null)} />}
      {asked?.kind === "silence" && <NewSilence alert={asked.alert} onClose={() => setAsked(null)} />}
      {asked?.kind === "unsilence" && <EndSilence silence={asked.silence} onClose={() => setAsked(null)} />}
    </Page>
  );
}

const STATES: Record<Alert["state"], [string, Tone]> = {
  STATE_UNSPECIFIED: ["unknown", "warn"],
  FIRING: ["firing", "bad"],
  ACKNOWLEDGED: ["acknowledged", "warn"],
  RESOLVED: ["resolved", "good"],
};

const secondsUntil = (at: string | undefined): number => (at === undefined ? 0 : (new Date(at).getTime() - Date.now()) / 1000);

function Rows({ alerts, chosen, ask, following = [] }: { alerts: Alert[]; following?: Alert[]; chosen: string | undefined; ask: ((asked: Asked) => void) | null }) {
  const go = route.useNavigate();
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Alerts">
      <table className="alerts">
        <thead>
          <tr>
            <th>Alert</th>
            <th>State</th>
            <th>Since</th>
            <th>Notified</th>
            <th>
              <span className="visually-hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {alerts.map((one) => {
            const open = one.alert === chosen;
            const [word, tone] = STATES[one.state];
            const under = following.filter((other) => other.cause === one.alert);
            return (
              <Fragment key={one.alert}>
                <tr className={open ? "chosen" : ""}>
                  <td className="wide">
                    <button type="button" className="link" aria-expanded={open} onClick={() => void go({ search: open ? {} : { alert: one.alert }, replace: true })}>
                      {one.rule}
                    </button>{" "}
                    <Badge>{one.severity === "PAGE" ? "page" : "ticket"}</Badge>
                    <div className="small">{one.summary}</div>
                    {one.follows !== undefined && one.follows !== "" && <div className="muted small">follows from {one.follows}</div>}
                    {under.length > 0 && <Following alerts={under} />}
                  </td>
                  <td>
                    <Badge tone={tone}>{word}</Badge> {one.silenced && <Badge>silenced</Badge>}
                  </td>
                  <td>
                    {time(one.startTime).slice(0, 19)}
                    <div className="muted small">{one.resolveTime === undefined ? `for ${duration(-secondsUntil(one.startTime))}` : `lasted ${duration(secondsUntil(one.resolveTime) - secondsUntil(one.startTime))}`}</div>
                  </td>
                  <td>
                    <Escalation alert={one} />
                  </td>
                  <td className="right">
                    {ask !== null && one.state === "FIRING" && (
                      <button type="button" className="primary" onClick={() => ask({ kind: "acknowledge", alert: one })}>
                        Acknowledge…
                      </button>
                    )}{" "}
                    {ask !== null && !one.silenced && (
                      <button type="button" className="quiet" onClick={() => ask({ kind: "silence", alert: one })}>
                        Silence…
                      </button>
                    )}
                  </td>
                </tr>
                {open && (
                  <tr className="opened">
                    <td colSpan={5}>
                      <Story alert={one} />
                    </td>
                  </tr>
                )}
              </Fragment>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** What one alert explains: nobody is notified of these, and they end with it. */
function Following({ alerts }: { alerts: Alert[] }) {
  return (
    <details className="small">
      <summary>{plural(alerts.length, "alert follows", "alerts follow")} from it</summary>
      <ul>
        {alerts.map((one) => (
          <li key={one.alert}>
            <b>{one.rule}</b> {one.summary}
          </li>
        ))}
      </ul>
    </details>
  );
}

/** Who knows, and when it goes on to the next one. */
function Escalation({ alert }: { alert: Alert }) {
  const notified = alert.notified ?? [];
  const left = secondsUntil(alert.acknowledgeDeadline);
  if (alert.acknowledgedBy || alert.state === "ACKNOWLEDGED") return <>{alert.acknowledgedBy ? `acknowledged by ${alert.acknowledgedBy}` : "acknowledged"}</>;
  return (
    <>
      {notified.length === 0 ? <span className="muted">no one</span> : notified.join(", ")}
      {alert.state === "FIRING" && alert.acknowledgeDeadline !== undefined && <div className="muted small">{notified.length === 0 ? "no one is on call; see On call below" : `escalates in ${duration(Math.max(0, left))}`}</div>}
      {(alert.level ?? 0) > 0 && <div className="small">escalated {plural(alert.level ?? 0, "time")}</div>}
    </>
  );
}

function Story({ alert }: { alert: Alert }) {
  const slo = alert.labels?.["slo"];
  return (
    <div className="opened-body">
      <div className="row">
        {Object.entries(alert.labels ?? {}).map(([name, value]) => (
          <Badge key={name}>
            {name} = {value}
          </Badge>
        ))}
        {slo !== undefined && (
          <Link to="/objectives" search={{ slo }}>
            Objective
          </Link>
        )}
        <Runbook link={alert.runbook} />
      </div>
      <ol className="story">
        {(alert.events ?? []).map((one, index) => (
          <li key={index}>
            <time className="muted">{time(one.time).slice(0, 19)}</time> <span>{one.text}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}

/** The name that actions are signed with; kept by the browser, so that it is typed once. */
function useName(): [string, (name: string) => void] {
  const [name, setName] = useState(localStorage.getItem(NAME) ?? "");
  useEffect(() => {
    if (name === "") localStorage.removeItem(NAME);
    else localStorage.setItem(NAME, name);
  }, [name]);
  return [name, setName];
}

function useDone(): () => void {
  const queries = useQueryClient();
  return () => void queries.invalidateQueries({ predicate: ({ queryKey }) => queryKey[0] === "Admin.ListAlerts" || queryKey[0] === "Admin.ListSilences" });
}

function Acknowledge({ alert, onClose }: { alert: Alert; onClose: () => void }) {
  const [by, setBy] = useName();
  const [comment, setComment] = useState("");
  const done = useDone();
  const request = { alert: alert.alert, by, ...(comment === "" ? {} : { comment }) };
  const cli = `syncpoint alerts ack ${shell(alert.alert)} --by ${shell(by || "NAME")}${comment === "" ? "" : ` --comment ${shell(comment)}`}`;
  return (
    <Confirm title={`Acknowledge ${alert.rule}`} text="You take over this alert; it does not escalate further." action="Acknowledge" disabled={by.trim() === ""} onClose={onClose} run={() => call("Admin.AcknowledgeAlert", request).then(done)}>
      <p>{alert.summary}</p>
      <Field label="Your name">{(id) => <input id={id} value={by} autoComplete="name" onChange={(event) => setBy(event.target.value)} />}</Field>
      <Field label="Comment" hint="The cause or the fix, if known. Saved in the alert's history.">
        {(id) => <input id={id} value={comment} onChange={(event) => setComment(event.target.value)} />}
      </Field>
      <CopyAs cli={cli} method="Admin.AcknowledgeAlert" request={request} />
    </Confirm>
  );
}

const SPANS: [string, string, number][] = [
  ["30m", "30 minutes", 1800],
  ["2h", "2 hours", 7200],
  ["8h", "8 hours", 28_800],
  ["1d", "a day", 86_400],
  ["7d", "a week", 604_800],
];

function NewSilence({ alert, onClose }: { alert: Alert | null; onClose: () => void }) {
  const [by, setBy] = useName();
  const [rule, setRule] = useState(alert?.rule ?? "");
  const [exactly, setExactly] = useState(alert !== null);
  const [span, setSpan] = useState("2h");
  const [comment, setComment] = useState("");
  const done = useDone();
  const [, , forS] = SPANS.find(([name]) => name === span) ?? SPANS[1]!;
  const labels = exactly ? (alert?.labels ?? {}) : {};
  const silence = () => ({ rule, labels, endTime: new Date(Date.now() + forS * 1000).toISOString(), by, comment });
  const cli = `syncpoint alerts silence ${shell(rule || "RULE")}${Object.entries(labels).map(([name, value]) => ` --label ${shell(`${name}=${value}`)}`).join("")} --for ${span} --comment ${shell(comment || "REASON")}`;
  return (
    <Confirm
      title="Silence alerts"
      text="No notifications are sent for matching alerts until the silence ends. They stay listed, and are sent then if still active."
      action="Silence"
      disabled={rule.trim() === "" || by.trim() === "" || comment.trim() === ""}
      onClose={onClose}
      run={() => call("Admin.CreateSilence", { silence: silence() }).then(done)}
    >
      <Field label="Rule" hint="* matches any text, as in Disk*">
        {(id) => <input id={id} value={rule} onChange={(event) => setRule(event.target.value)} />}
      </Field>
      {alert !== null && Object.keys(alert.labels ?? {}).length > 0 && (
        <label className="check">
          <input type="checkbox" checked={exactly} onChange={(event) => setExactly(event.target.checked)} />
          Only with {Object.entries(alert.labels ?? {}).map(([name, value]) => `${name} = ${value}`).join(", ")}
        </label>
      )}
      <Field label="Duration">
        {(id) => (
          <select id={id} value={span} onChange={(event) => setSpan(event.target.value)}>
            {SPANS.map(([name, words]) => (
              <option key={name} value={name}>
                {words}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label="Reason">{(id) => <input id={id} value={comment} onChange={(event) => setComment(event.target.value)} />}</Field>
      <Field label="Your name">{(id) => <input id={id} value={by} autoComplete="name" onChange={(event) => setBy(event.target.value)} />}</Field>
      <CopyAs cli={cli} method="Admin.CreateSilence" request={{ silence: silence() }} />
    </Confirm>
  );
}

function EndSilence({ silence, onClose }: { silence: Silence; onClose: () => void }) {
  const done = useDone();
  const request = { silence: silence.silence };
  return (
    <Confirm title={`End the silence of ${silence.rule || "all rules"}?`} text="Notifications for matching active alerts are sent immediately." action="End silence" onClose={onClose} run={() => call("Admin.DeleteSilence", request).then(done)}>
      <CopyAs cli={`syncpoint alerts unsilence ${shell(silence.silence)}`} method="Admin.DeleteSilence" request={request} />
    </Confirm>
  );
}

function Silences({ ask }: { ask: ((asked: Asked) => void) | null }) {
  const found = useQuery(silencesQuery);
  const silences = found.data?.silences ?? [];
  return (
    <Card title="Silenced" flush>
      {found.error !== null && <Problem error={found.error} />}
      {found.data !== undefined && silences.length === 0 && <Empty>No silences.</Empty>}
      {silences.length > 0 && (
        <div className="scroll" tabIndex={0} role="group" aria-label="Silenced">
          <table>
            <thead>
              <tr>
                <th>Rule</th>
                <th>Ends</th>
                <th>By</th>
                <th>Reason</th>
                <th>
                  <span className="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {silences.map((one) => (
                <tr key={one.silence}>
                  <td>
                    {one.rule || "*"} <span className="muted">{Object.entries(one.labels ?? {}).map(([name, value]) => `${name}=${value}`).join(" ")}</span>
                  </td>
                  <td>in {duration(Math.max(0, secondsUntil(one.endTime)))}</td>
                  <td>{one.by}</td>
                  <td>{one.comment}</td>
                  <td className="right">
                    {ask !== null && (
                      <button type="button" className="quiet" onClick={() => ask({ kind: "unsilence", silence: one })}>
                        End…
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}

function OnCallCard() {
  const found = useQuery(onCallQuery);
  const people = found.data?.people ?? [];
  const sites = found.data?.sites ?? [];
  return (
    <Card title="On call" note={people.length > 0 ? `an unacknowledged page escalates after ${duration(found.data?.acknowledgeTime)}` : undefined}>
      {found.error !== null && <Problem error={found.error} />}
      {found.data !== undefined && people.length === 0 && (
        <p>
          No one is notified: alerts are only listed here. To send notifications, set <code>people</code> and <code>on_call</code> in the monitor's file (<code>syncpoint serve --monitor FILE</code>, or <code>monitor</code> in <code>cluster.yaml</code>).
        </p>
      )}
      {people.length > 0 && (
        <ol className="chain-of-people">
          {people.map((one, index) => (
            <li key={one.name}>
              <b>{one.name}</b> <span className="muted">{[index === 0 ? "first" : "", one.site ?? "last resort", (one.ways ?? []).join(" and ")].filter((part) => part).join(", ")}</span>
            </li>
          ))}
        </ol>
      )}
      {sites.length > 1 && (
        <p className="muted">
          {sites.map((one) => (
            <span key={one.name} className="site">
              {one.onCall ? <b>{one.name}</b> : one.name} {one.hours} {one.timeZone}{" "}
            </span>
          ))}
        </p>
      )}
    </Card>
  );
}
