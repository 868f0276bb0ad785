// Calls, their callers, and whether they were allowed: the logs of all processes, and a check of their integrity.

import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import { type AuditEntry, auditQuery, type AuditSearch, verifyAudit } from "../api/audit";
import { audits } from "../api/client";
import { usePermissions } from "../api/queries";
import { count, plural, time, timeOf } from "../lib/format";
import { auditRoute } from "../router";
import { Badge, Card, CopyButton, Empty, Facts, Field, Loading, Page, Problem } from "../ui/parts";
import { Table } from "../ui/Table";

const PERMISSION = "syncpoint.audit.read";

export function AuditPage() {
  const search = auditRoute.useSearch();
  const rights = usePermissions("server", [PERMISSION]);
  return (
    <Page title="Audit log" of="Calls, their callers, and whether they were allowed">
      {!audits() ? (
        <Card title="No audit log configured">
          <Empty>
            To have every process write one, set <code>audit: {"{file: audit.log}"}</code> in the <code>--auth</code> file.
          </Empty>
        </Card>
      ) : !rights.known ? (
        <Loading />
      ) : !rights.has(PERMISSION) ? (
        <Card title="Permission required">
          <Empty>Reading the audit log requires the permission {PERMISSION} on the server, which roles/owner and roles/syncpoint.auditor include.</Empty>
        </Card>
      ) : (
        <Log key={JSON.stringify(search)} search={search} />
      )}
    </Page>
  );
}

/** As the log has times, so that they compare as texts; null: it is no time. */
const logged = (text: string | undefined): string | null => (text === undefined ? "" : (timeOf(text) ?? null));

function Log({ search }: { search: AuditSearch }) {
  const go = useNavigate({ from: auditRoute.fullPath });
  const [draft, setDraft] = useState<AuditSearch>(search);
  const [open, setOpen] = useState<string | null>(null);
  const [times] = useState(() => ({ since: logged(search.since), until: logged(search.until) }));
  const bad = times.since === null || times.until === null;
  const wanted: AuditSearch = { ...search, ...(times.since ? { since: times.since } : {}), ...(times.until ? { until: times.until } : {}) };
  const found = useInfiniteQuery({ ...auditQuery(wanted), enabled: !bad });
  const pages = found.data?.pages ?? [];
  const entries = pages.flatMap((page) => page.entries);
  const processes = [...new Set(pages.flatMap((page) => page.processes))];
  const set = (field: keyof AuditSearch) => (event: { target: { value: string } }) => {
    const { [field]: _, ...rest } = draft;
    setDraft(event.target.value === "" ? rest : { ...rest, [field]: event.target.value });
  };
  const keyOf = (one: AuditEntry): string => `${one.process} ${one.n ?? ""} ${one.time ?? ""}`;
  return (
    <>
      <Verification />
      <Card title="Calls" note={processes.length > 0 ? `newest first; from ${processes.join(", ")}` : "newest first"} flush>
        <form
          className="filters"
          onSubmit={(event) => {
            event.preventDefault();
            if (JSON.stringify(draft) === JSON.stringify(search)) void found.refetch();
            else void go({ search: draft });
          }}
        >
          <Field label="Principal">{(id) => <input id={id} size={20} value={draft.who ?? ""} onChange={set("who")} />}</Field>
          <Field label="Method">{(id) => <input id={id} size={14} placeholder="DeleteTopic" value={draft.method ?? ""} onChange={set("method")} />}</Field>
          <Field label="Resource">{(id) => <input id={id} size={20} placeholder="topics/orders" value={draft.resource ?? ""} onChange={set("resource")} />}</Field>
          <Field label="Outcome">
            {(id) => (
              <select id={id} value={draft.outcome ?? ""} onChange={set("outcome")}>
                <option value="">any</option>
                <option value="allowed">allowed</option>
                <option value="refused">refused</option>
              </select>
            )}
          </Field>
          <Field label="Since">{(id) => <input id={id} size={12} placeholder="-1d" value={draft.since ?? ""} onChange={set("since")} />}</Field>
          <Field label="Until">{(id) => <input id={id} size={12} placeholder="-1h" value={draft.until ?? ""} onChange={set("until")} />}</Field>
          {processes.length > 1 || draft.process !== undefined ? (
            <Field label="Process">
              {(id) => (
                <select id={id} value={draft.process ?? ""} onChange={set("process")}>
                  <option value="">all</option>
                  {[...new Set([...processes, ...(draft.process === undefined ? [] : [draft.process])])].map((one) => (
                    <option key={one}>{one}</option>
                  ))}
                </select>
              )}
            </Field>
          ) : null}
          <button type="submit" className="primary">
            Search
          </button>
        </form>
        {bad && <Problem error="Write -10m, -2h, -7d, or 2026-11-21T03:00:00Z." what="Invalid time" />}
        {found.isError && <Problem error={found.error} />}
        {[...new Set(pages.flatMap((page) => page.unknown))].map((one) => (
          <p key={one} className="note warn">
            Not shown: {one}
          </p>
        ))}
        {found.isPending && !bad && !found.isError && <Loading />}
        {found.isSuccess && entries.length === 0 && !found.hasNextPage && <Empty>No matching entries. Allowed reads, publishes and pulls are logged only with data: true in the audit settings.</Empty>}
        <Table
          label="Calls"
          rows={entries}
          rowKey={keyOf}
          below={(one) => open === keyOf(one) && <Entry of={one} />}
          columns={[
            {
              title: "Time",
              cell: (one) => (
                <button type="button" className="link" aria-expanded={open === keyOf(one)} onClick={() => setOpen(open === keyOf(one) ? null : keyOf(one))}>
                  {time(one.time)}
                </button>
              ),
            },
            { title: "Principal", style: "wrap", cell: (one) => one.who || <span className="muted">{one.broken ? "not readable" : "none"}</span> },
            { title: "Outcome", cell: (one) => one.allowed !== undefined && <Badge tone={one.allowed ? "good" : "bad"}>{one.allowed ? "allowed" : "refused"}</Badge> },
            { title: "Method", cell: (one) => (one.method ?? "").slice((one.method ?? "").lastIndexOf("/") + 1) },
            { title: "Resource", style: "wrap", cell: (one) => one.resource },
            { title: "Reason", style: "wrap muted", cell: (one) => `${one.why ?? ""}${one.left_out === undefined ? "" : ` ${count(one.left_out)} earlier entries were counted, not logged`}` },
            ...(processes.length > 1 ? [{ title: "Process", style: "muted", cell: (one: AuditEntry) => one.process }] : []),
          ]}
        />
        {found.hasNextPage && (
          <p className="more">
            <button type="button" disabled={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
              {found.isFetchingNextPage ? "Loading …" : entries.length === 0 ? "Search further back" : `More after ${count(entries.length)}`}
            </button>
          </p>
        )}
      </Card>
    </>
  );
}

function Entry({ of }: { of: AuditEntry }) {
  return (
    <Facts
      rows={[
        ["Number", of.n === undefined ? "not readable" : `${count(of.n)} of ${of.process}`],
        ["Method", of.method ?? ""],
        ["Permission", of.permission ?? ""],
        ["From", of.peer ?? ""],
        ["Catalog", of.policy === undefined ? "" : `revision ${count(of.policy)}`],
        ["Previous hash", <code key="before">{of.before}</code>],
      ]}
    />
  );
}

/** Of each log whether any line was changed, left out or put in. */
function Verification() {
  const checked = useMutation({ mutationFn: verifyAudit });
  return (
    <Card
      title="Log integrity"
      note="each line contains the hash of the previous line"
      actions={
        <button type="button" disabled={checked.isPending} onClick={() => checked.mutate()}>
          {checked.isPending ? "Checking …" : "Verify"}
        </button>
      }
    >
      {checked.isError && <Problem error={checked.error} />}
      {(checked.data?.unknown ?? []).map((one) => (
        <p key={one} className="note warn">
          Not checked: {one}
        </p>
      ))}
      {(checked.data?.logs ?? []).map((one) =>
        one.broken === "" ? (
          <p key={one.process} className="note good" role="status">
            {one.process}: {plural(one.lines, "line")}, unbroken hash chain; last hash <code>{one.hash}</code> <CopyButton text={one.hash} />
          </p>
        ) : (
          <div key={one.process} className="problem" role="alert">
            <strong>{one.process}: the log was changed</strong>
            <p>{one.broken}</p>
          </div>
        ),
      )}
      {checked.isIdle && <p className="muted">Keep the hash shown after verifying in another place: <code>syncpoint audit verify --hash</code> uses it to detect lines cut off at the end.</p>}
    </Card>
  );
}
