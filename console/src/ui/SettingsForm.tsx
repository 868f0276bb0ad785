// Settings of a topic or a subscription as a form: what was changed is sent, what is wrong is said at its field.

import { useMutation } from "@tanstack/react-query";
import { Fragment, type ReactNode, useState } from "react";

import type { Changed, Setting, Value } from "../api/settings";
import { wrongIn } from "../api/settings";
import { Card, Field, Problem, wrongOf } from "./parts";

const STATES = ["no", "yes"];
const wordOf = (value: Value): string => (typeof value === "boolean" ? (STATES[Number(value)] as string) : value === "" ? "none" : value);
const isBlamed = (error: unknown, setting: Setting): string | undefined => wrongOf(error, setting.key, setting.path);

/** One setting, and under it the option of the command line that sets the same. */
export function SettingField({ setting, value, error, set }: { setting: Setting; value: Value; error: unknown; set: (next: Value) => void }) {
  const wrong = wrongIn(setting, value) ?? isBlamed(error, setting);
  const hint = (
    <>
      {setting.hint} <code>{setting.option}</code>
    </>
  );
  const choose = (id: string, shown: string, choices: readonly string[], take: (text: string) => Value) => (
    <select id={id} value={shown} onChange={(event) => set(take(event.target.value))}>
      {choices.map((one) => (
        <option key={one} value={one}>
          {one === "" ? "none" : one}
        </option>
      ))}
    </select>
  );
  return (
    <Field label={setting.label} wrong={wrong} hint={hint}>
      {(id) =>
        typeof value === "boolean" ? (
          choose(id, wordOf(value), STATES, (text) => text === "yes")
        ) : setting.choices !== undefined ? (
          choose(id, value, setting.choices, (text) => text)
        ) : setting.kind === "json" ? (
          <textarea id={id} className="mono" rows={value === "" ? 1 : 6} spellCheck={false} value={value} onChange={(event) => set(event.target.value)} />
        ) : (
          <input id={id} inputMode={setting.kind === "count" ? "numeric" : "text"} placeholder={setting.kind === "span" ? "none" : ""} value={value} onChange={(event) => set(event.target.value)} />
        )
      }
    </Field>
  );
}

interface Props {
  title: string;
  note?: ReactNode;
  settings: readonly Setting[];
  shown: (setting: Setting) => Value;
  may: boolean;
  save: (changed: Changed) => Promise<unknown>;
  copy: (changed: Changed) => ReactNode;
}

/** `save` gets the fields that were changed. */
export function SettingsForm({ title, note, settings, shown, may, save, copy }: Props) {
  const [draft, setDraft] = useState<Changed>({});
  const changed = Object.fromEntries(settings.flatMap((one) => (draft[one.key] === undefined || draft[one.key] === shown(one) ? [] : [[one.key, draft[one.key] as Value]])));
  const wrong = settings.some((one) => changed[one.key] !== undefined && wrongIn(one, changed[one.key] as Value) !== null);
  const saved = useMutation({ mutationFn: save, onSuccess: () => setDraft({}) });
  const amount = Object.keys(changed).length;
  const blamed = settings.some((one) => isBlamed(saved.error, one) !== undefined);
  const groups = [...new Set(settings.map((one) => one.group))];
  const still = (one: Setting): boolean => !may || one.fixed === true;
  const facts = (rows: Setting[]) =>
    rows.length > 0 && (
      <dl className="facts wide">
        {rows.map((one) => (
          <div key={one.key}>
            <dt>{one.label}</dt>
            <dd>{wordOf(shown(one))}</dd>
          </div>
        ))}
      </dl>
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
        {groups.map((group) => {
          const members = settings.filter((one) => one.group === group);
          return (
            <Fragment key={group}>
              <h3>{group}</h3>
              {facts(members.filter(still))}
              {members
                .filter((one) => !still(one))
                .map((one) => (
                  <SettingField
                    key={one.key}
                    setting={one}
                    value={draft[one.key] ?? shown(one)}
                    error={saved.error}
                    set={(next) => {
                      saved.reset();
                      setDraft({ ...draft, [one.key]: next });
                    }}
                  />
                ))}
            </Fragment>
          );
        })}
        {saved.isError && !blamed && <Problem error={saved.error} />}
        {saved.isSuccess && amount === 0 && (
          <p className="note good" role="status">
            Saved.
          </p>
        )}
        {may && (
          <footer className="form-foot">
            <button type="submit" className="primary" disabled={amount === 0 || wrong || saved.isPending}>
              {amount === 0 ? "Save" : `Save ${amount} ${amount === 1 ? "change" : "changes"}`}
            </button>
            {amount > 0 && (
              <button type="button" onClick={() => setDraft({})}>
                Discard
              </button>
            )}
          </footer>
        )}
      </form>
    </Card>
  );
}
