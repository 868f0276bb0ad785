// A message, and what rules would make of it: nothing is stored.

import { useMutation } from "@tanstack/react-query";
import { useState } from "react";

import { call, type Fields } from "../api/client";
import { EMPTY_DRAFT, type RuleDraft, ruleOf, type RulePart, type Trial } from "../api/rules";
import { shell } from "../lib/copies";
import { idOf, plural, projectOf } from "../lib/format";
import { given } from "../lib/pairs";
import { base64Of } from "../lib/payload";
import { CopyAs } from "./CopyAs";
import { Pairs } from "./Pairs";
import { Badge, Card, Field, Problem, wrongOf } from "./parts";
import { RuleFields } from "./Rules";
import { Table } from "./Table";

export function RuleTrial({ name }: { name: string }) {
  const [attributes, setAttributes] = useState<[string, string][]>([]);
  const [data, setData] = useState("");
  const [own, setOwn] = useState(false);
  const [draft, setDraft] = useState<RuleDraft>(EMPTY_DRAFT);
  const named = given(attributes);
  const message: Fields = { ...(data === "" ? {} : { data: base64Of(data) }), ...(named.length === 0 ? {} : { attributes: Object.fromEntries(named) }) };
  const request: Fields = { subscription: name, message, explain: true, ...(own ? { rule: ruleOf(draft) } : {}) };
  const tried = useMutation({ mutationFn: () => call<Trial>("Admin.TestRule", request) });
  const cli = [`syncpoint rules test --subscription ${shell(idOf(name))} --project ${shell(projectOf(name))} --explain`];
  if (own) cli.push(`--filter ${shell(draft.sql)}`);
  if (own && draft.action !== "") cli.push(`--action ${shell(draft.action)}`);
  if (named.length > 0) cli.push(`--attribute ${shell(named.map((pair) => pair.join("=")).join(","))}`);
  if (data !== "") cli.push(`--data ${shell(data)}`);
  const blamed = wrongOf(tried.error, "rule", "rule.sql", "filter", "rule.action") !== undefined;
  return (
    <Card title="Test a message" note="shows what the rules would do; nothing is published" actions={<CopyAs cli={cli.join(" ")} method="Admin.TestRule" request={request} />}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          tried.mutate();
        }}
      >
        <Pairs legend="Attributes" of="tried attribute" pairs={attributes} onChange={setAttributes} />
        <Field label="Data" hint="Saved rules can use attributes only; a rule tested here can also use body.FIELD.">
          {(id) => <textarea id={id} rows={2} className="mono" spellCheck={false} value={data} onChange={(event) => setData(event.target.value)} />}
        </Field>
        <label className="check">
          <input type="checkbox" checked={own} onChange={(event) => setOwn(event.target.checked)} /> Test another rule instead of the subscription's rules
        </label>
        {own && <RuleFields draft={draft} error={tried.error} onChange={setDraft} />}
        {tried.isError && !(own && blamed) && <Problem error={tried.error} />}
        <footer className="form-foot">
          <button type="submit" className="primary" disabled={tried.isPending}>
            Test
          </button>
        </footer>
      </form>
      {tried.isSuccess && <Outcome trial={tried.data} />}
    </Card>
  );
}

const RESULTS: Record<string, "good" | "bad" | "calm"> = { true: "good", false: "bad" };

function Outcome({ trial }: { trial: Trial }) {
  const copies = trial.copies ?? [];
  return (
    <>
      <p className={trial.selected ? "note good" : "note"} role="status">
        {trial.selected ? `Selected: a subscriber would receive ${plural(copies.length, "copy", "copies")}.` : "Not selected."}
      </p>
      <Table
        label="Evaluation"
        rows={(trial.parts ?? []).map((part, at) => ({ ...part, at }))}
        rowKey={(one) => String(one.at)}
        columns={[
          { title: "Rule", cell: (one: RulePart) => one.rule },
          { title: "Part", style: "mono parts", cell: (one: RulePart) => <span className={`depth-${Math.min(6, one.depth ?? 0)}`}>{one.text}</span> },
          { title: "Result", cell: (one: RulePart) => <Badge tone={RESULTS[one.result ?? ""] ?? (one.result?.startsWith("fails") ? "bad" : "calm")}>{one.result}</Badge> },
        ]}
      />
      <Table
        label="Copies"
        rows={copies.map((copy, at) => ({ copy, at }))}
        rowKey={(one) => String(one.at)}
        columns={[
          { title: "Copy", cell: (one) => one.at + 1 },
          {
            title: "Attributes",
            style: "mono",
            cell: (one) =>
              Object.entries(one.copy.attributes ?? {})
                .map(([key, value]) => `${key}=${value}`)
                .join(", "),
          },
        ]}
      />
    </>
  );
}
