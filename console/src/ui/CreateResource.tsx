// A dialog that creates a topic or a subscription with its usual settings; the others are folded away.

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import type { Fields } from "../api/client";
import { type Changed, callsOf, commandOf, type Kind, perform, type Setting, shownOf, wrongIn } from "../api/settings";
import { shell } from "../lib/copies";
import { idOf } from "../lib/format";
import { CopyAs } from "./CopyAs";
import { Dialog, Field, Problem, wrongOf } from "./parts";
import { SettingField } from "./SettingsForm";

/** `topic`: of a subscription. */
export function CreateResource({ kind, project, topic, onClose }: { kind: Kind; project: string; topic?: string; onClose: () => void }) {
  const [id, setId] = useState("");
  const [draft, setDraft] = useState<Changed>({});
  const go = useNavigate();
  const queries = useQueryClient();
  const start: Fields = { name: `projects/${project}/${kind.plural}/${id}`, ...(topic === undefined ? {} : { topic }) };
  const none = (one: Setting) => shownOf(one, {}, {});
  const changed = Object.fromEntries(Object.entries(draft).filter(([key, value]) => value !== none(kind.settings.find((one) => one.key === key) as Setting)));
  const calls = callsOf(kind, start, changed, true);
  const made = useMutation({
    mutationFn: () => perform(calls),
    onSuccess: () => {
      void queries.invalidateQueries();
      void go({ to: `/p/${project}/${kind.plural}/${encodeURIComponent(id)}` });
      onClose();
    },
  });
  const wrong = kind.settings.some((one) => changed[one.key] !== undefined && wrongIn(one, changed[one.key] as string) !== null);
  const blamed = kind.settings.some((one) => wrongOf(made.error, one.key, one.path) !== undefined);
  const field = (one: Setting) => (
    <SettingField
      key={one.key}
      setting={one}
      value={draft[one.key] ?? none(one)}
      error={made.error}
      set={(next) => {
        made.reset();
        setDraft({ ...draft, [one.key]: next });
      }}
    />
  );
  return (
    <Dialog title={topic === undefined ? `Create a ${kind.one}` : `Create a ${kind.one} to ${idOf(topic)}`} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          made.mutate();
        }}
      >
        <Field label="Name" hint="3 to 255 characters: a letter, then letters, digits, or -._~+%">
          {(field_id) => <input id={field_id} required value={id} onChange={(event) => setId(event.target.value)} />}
        </Field>
        <div className="settings">{kind.settings.filter((one) => one.usual).map(field)}</div>
        <details>
          <summary>More settings</summary>
          <div className="settings">{kind.settings.filter((one) => !one.usual).map(field)}</div>
        </details>
        {topic !== undefined && <p className="hint">The subscription receives every message published from now on.</p>}
        {made.isError && !blamed && <Problem error={made.error} />}
        <footer>
          <CopyAs cli={commandOf(kind, String(start["name"]), "create", changed, topic === undefined ? "" : ` --topic ${shell(idOf(topic))}`)} {...(calls[0] as { method: string; request: Fields })} />
          <button type="submit" className="primary" disabled={made.isPending || wrong}>
            Create
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
