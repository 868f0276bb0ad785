// Settings of a topic or a subscription as a form: what was changed is sent, what is wrong is said at its field.

import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";

import { protoSpanOf } from "../lib/format";
import { Card, Field, Problem, wrongOf } from "./parts";

export interface Setting {
  /** The field of the request, as errors name it. */
  key: string;
  label: string;
  hint?: string;
  /** `span`: a time such as 10m; empty is none. */
  kind: "span" | "count" | "flag" | "text";
  value: string | boolean;
}

export type Changed = Record<string, string | boolean>;

const STATES = ["no", "yes"];
const shownOf = (value: string | boolean): string => (typeof value === "boolean" ? (STATES[Number(value)] as string) : value === "" ? "none" : value);

/** `save` gets the fields that were changed, times as protobuf writes them. */
export function SettingsForm({ title, note, settings, may, save, copy }: { title: string; note?: ReactNode; settings: Setting[]; may: boolean; save: (changed: Changed) => Promise<unknown>; copy: (changed: Changed) => ReactNode }) {
  const [draft, setDraft] = useState<Changed>({});
  const changed: Changed = {};
  const badSpans: string[] = [];
  for (const one of settings) {
    const value = draft[one.key];
    if (value === undefined || value === one.value) continue;
    const span = one.kind === "span" ? protoSpanOf(String(value)) : "";
    if (span === null) badSpans.push(one.key);
    changed[one.key] = one.kind === "span" && span !== null ? span : value;
  }
  const saved = useMutation({ mutationFn: save, onSuccess: () => setDraft({}) });
  const amount = Object.keys(changed).length;
  const blamed = settings.some((one) => wrongOf(saved.error, one.key) !== undefined);
  if (!may)
    return (
      <Card title={title} note={note} actions={copy({})}>
        <dl className="facts wide">
          {settings.map((one) => (
            <div key={one.key}>
              <dt>{one.label}</dt>
              <dd>{shownOf(one.value)}</dd>
            </div>
          ))}
        </dl>
      </Card>
    );
  return (
    <Card title={title} note={note} actions={copy(changed)}>
      <form
        className="settings"
        onSubmit={(event) => {
          event.preventDefault();
          saved.mutate(changed);
        }}
      >
        {settings.map((one) => {
          const value = draft[one.key] ?? one.value;
          const set = (next: string | boolean) => {
            saved.reset();
            setDraft({ ...draft, [one.key]: next });
          };
          if (one.kind === "flag")
            return (
              <Field key={one.key} label={one.label} wrong={wrongOf(saved.error, one.key)} {...(one.hint === undefined ? {} : { hint: one.hint })}>
                {(id) => (
                  <select id={id} value={shownOf(value)} onChange={(event) => set(event.target.value === "yes")}>
                    {STATES.map((state) => (
                      <option key={state}>{state}</option>
                    ))}
                  </select>
                )}
              </Field>
            );
          const wrong = badSpans.includes(one.key) ? "Write a duration such as 30s, 10m, 12h or 7d." : wrongOf(saved.error, one.key);
          return (
            <Field key={one.key} label={one.label} wrong={wrong} {...(one.hint === undefined ? {} : { hint: one.hint })}>
              {(id) => <input id={id} inputMode={one.kind === "count" ? "numeric" : "text"} placeholder={one.kind === "span" ? "none" : ""} value={String(value)} onChange={(event) => set(event.target.value)} />}
            </Field>
          );
        })}
        {saved.isError && !blamed && <Problem error={saved.error} />}
        {saved.isSuccess && amount === 0 && (
          <p className="note good" role="status">
            Saved.
          </p>
        )}
        <footer className="form-foot">
          <button type="submit" className="primary" disabled={amount === 0 || badSpans.length > 0 || saved.isPending}>
            {amount === 0 ? "Save" : `Save ${amount} ${amount === 1 ? "change" : "changes"}`}
          </button>
          {amount > 0 && (
            <button type="button" onClick={() => setDraft({})}>
              Discard
            </button>
          )}
        </footer>
      </form>
    </Card>
  );
}
