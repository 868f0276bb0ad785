// Rules of a subscription: which messages it gets and what its copies of them say; made, changed, deleted, and tried.

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { ApiError, call, type Fields } from "../api/client";
import { callQuery, usePermissions } from "../api/queries";
import { draftOf, EMPTY_DRAFT, type Rule, type RuleDraft, ruleOf } from "../api/rules";
import { shell } from "../lib/copies";
import { idOf, projectOf } from "../lib/format";
import { given } from "../lib/pairs";
import { CopyAs } from "./CopyAs";
import { Pairs } from "./Pairs";
import { Card, Confirm, Empty, Field, Loading, Problem, wrongOf } from "./parts";
import { RuleTrial } from "./RuleTrial";
import { Table } from "./Table";

const UPDATE = "pubsub.subscriptions.update";

const filterOf = (rule: Rule): string =>
  rule.correlation === undefined
    ? (rule.sql ?? "")
    : Object.entries(rule.correlation.properties ?? {})
        .map(([name, value]) => `${name} is '${value}'`)
        .join(" and ");

export function Rules({ name }: { name: string }) {
  const request = { subscription: name };
  const found = useQuery(callQuery<{ rules?: Rule[] }>("Admin.ListRules", request));
  const rights = usePermissions(name, [UPDATE]);
  const [editing, setEditing] = useState<Rule | "new" | null>(null);
  const [deleting, setDeleting] = useState<string | null>(null);
  const rules = found.data?.rules ?? [];
  const may = rights.has(UPDATE);
  const where = `--subscription ${shell(idOf(name))} --project ${shell(projectOf(name))}`;
  return (
    <>
      <Card
        title="Rules"
        note="rules without an action share one copy of a message; each rule with an action makes its own copy"
        flush
        actions={
          <>
            <CopyAs cli={`syncpoint rules list ${where}`} method="Admin.ListRules" request={request} />
            {may && (
              <button type="button" className="primary" onClick={() => setEditing("new")}>
                Create rule
              </button>
            )}
          </>
        }
      >
        {found.isPending && <Loading />}
        {found.isError && <Problem error={found.error} />}
        {found.isSuccess && rules.length === 0 && <Empty>Without rules, the subscription receives nothing.{may && " Create a rule; the filter 1=1 selects every message."}</Empty>}
        <Table
          label="Rules"
          rows={rules}
          rowKey={(one) => one.name}
          columns={[
            { title: "Rule", cell: (one) => one.name },
            { title: "Filter", cell: (one) => <code>{filterOf(one)}</code> },
            { title: "Action", cell: (one) => one.action !== undefined && <code>{one.action}</code> },
            { title: "Parameters", style: "muted", cell: (one) => draftOf(one).parameters.map(([key, value]) => `@${key} = ${value}`).join(", ") },
            {
              title: null,
              right: true,
              cell: (one) =>
                may && (
                  <>
                    <button type="button" className="quiet" aria-label={`Change ${one.name}`} onClick={() => setEditing(one)}>
                      Change
                    </button>
                    <button type="button" className="quiet" aria-label={`Delete ${one.name}`} onClick={() => setDeleting(one.name)}>
                      Delete
                    </button>
                  </>
                ),
            },
          ]}
        />
      </Card>
      <RuleTrial name={name} />
      {editing !== null && <EditRule name={name} rule={editing === "new" ? null : editing} where={where} onClose={() => setEditing(null)} onDone={() => void found.refetch()} />}
      {deleting !== null && <DeleteRule name={name} rule={deleting} last={rules.length === 1} where={where} onClose={() => setDeleting(null)} onDone={() => void found.refetch()} />}
    </>
  );
}

function Scope({ all, onChange }: { all: boolean; onChange: (all: boolean) => void }) {
  return (
    <label className="check">
      <input type="checkbox" checked={all} onChange={(event) => onChange(event.target.checked)} /> Apply to stored, unacknowledged messages too, not only to new ones
    </label>
  );
}

/** Filter, action and parameters; also where a rule is only tried. */
export function RuleFields({ draft, error, onChange }: { draft: RuleDraft; error: unknown; onChange: (draft: RuleDraft) => void }) {
  const equal = given(draft.correlation).length > 0;
  return (
    <>
      {!equal && (
        <Field label="Filter (SQL)" hint="For example: region = 'eu' AND total > @limit" wrong={wrongOf(error, "rule.sql", "filter") ?? wholeOf(error)}>
          {(id) => <textarea id={id} rows={2} className="mono" spellCheck={false} value={draft.sql} onChange={(event) => onChange({ ...draft, sql: event.target.value })} />}
        </Field>
      )}
      <Pairs legend="Or properties that must match exactly" of="property" pairs={draft.correlation} onChange={(correlation) => onChange({ ...draft, correlation })} />
      <Field label="Action" hint="For example: SET replicated = 1; REMOVE draft" wrong={wrongOf(error, "rule.action")}>
        {(id) => <input id={id} className="mono" spellCheck={false} value={draft.action} onChange={(event) => onChange({ ...draft, action: event.target.value })} />}
      </Field>
      <Pairs legend="Parameters (@name)" of="parameter" pairs={draft.parameters} onChange={(parameters) => onChange({ ...draft, parameters })} />
    </>
  );
}

/** An error of a rule as a whole stands at its filter, which most of them are about. */
const wholeOf = (error: unknown): string | undefined => (error instanceof ApiError && error.violations.some((one) => one.field === "rule") ? error.message : undefined);

const FIELDS = ["rule", "rule.name", "rule.sql", "filter", "rule.action"];
const elsewhere = (error: unknown): unknown => (wrongOf(error, ...FIELDS) === undefined ? error : null);

function EditRule({ name, rule, where, onClose, onDone }: { name: string; rule: Rule | null; where: string; onClose: () => void; onDone: () => void }) {
  const [draft, setDraft] = useState<RuleDraft>(rule === null ? EMPTY_DRAFT : draftOf(rule));
  const [all, setAll] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const method = rule === null ? "Admin.CreateRule" : "Admin.UpdateRule";
  const request: Fields = { subscription: name, rule: ruleOf(draft), scope: all ? "ALL_MESSAGES" : "NEW_MESSAGES" };
  const cli = [`syncpoint rules ${rule === null ? "create" : "update"} ${shell(draft.name || "NAME")} ${where}`];
  const equal = given(draft.correlation);
  cli.push(equal.length > 0 ? `--correlation ${shell(equal.map((pair) => pair.join("=")).join(","))}` : `--filter ${shell(draft.sql)}`);
  if (draft.action !== "") cli.push(`--action ${shell(draft.action)}`);
  for (const pair of given(draft.parameters)) cli.push(`--parameter ${shell(pair.join("="))}`);
  if (all) cli.push("--all-messages");
  return (
    <Confirm
      title={rule === null ? "Create a rule" : `Change the rule ${rule.name}`}
      text=""
      action={rule === null ? "Create" : "Change"}
      disabled={draft.name === "" || (draft.sql === "" && equal.length === 0)}
      shown={elsewhere}
      onClose={onClose}
      run={async () => {
        try {
          await call(method, request);
        } catch (failed) {
          setError(failed);
          throw failed;
        }
        onDone();
      }}
    >
      {rule === null && <Field label="Name" wrong={wrongOf(error, "rule.name")}>{(id) => <input id={id} autoFocus value={draft.name} onChange={(event) => setDraft({ ...draft, name: event.target.value })} />}</Field>}
      <RuleFields draft={draft} error={error} onChange={setDraft} />
      <Scope all={all} onChange={setAll} />
      <CopyAs cli={cli.join(" ")} method={method} request={request} />
    </Confirm>
  );
}

function DeleteRule({ name, rule, last, where, onClose, onDone }: { name: string; rule: string; last: boolean; where: string; onClose: () => void; onDone: () => void }) {
  const [all, setAll] = useState(false);
  const request: Fields = { subscription: name, name: rule, scope: all ? "ALL_MESSAGES" : "NEW_MESSAGES" };
  return (
    <Confirm
      title={`Delete the rule ${rule}?`}
      text={last ? "This is the last rule: without rules, the subscription receives nothing." : "Messages that only this rule selects are no longer delivered."}
      action="Delete rule"
      dangerous
      onClose={onClose}
      run={async () => {
        await call("Admin.DeleteRule", request);
        onDone();
      }}
    >
      <Scope all={all} onChange={setAll} />
      <CopyAs cli={`syncpoint rules delete ${shell(rule)} ${where}${all ? " --all-messages" : ""}`} method="Admin.DeleteRule" request={request} />
    </Confirm>
  );
}
