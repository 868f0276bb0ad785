// Small parts that all pages are made of.

import { type ReactNode, useEffect, useId, useRef, useState } from "react";

import { ApiError } from "../api/client";

export function Page({ title, of, actions, children }: { title: string; of?: ReactNode; actions?: ReactNode; children: ReactNode }) {
  useEffect(() => {
    document.title = `${title} – Syncpoint`;
  }, [title]);
  return (
    <main id="content" tabIndex={-1}>
      <header className="page-head">
        <div className="page-title">
          <h1>{title}</h1>
          {of !== undefined && <div className="muted">{of}</div>}
        </div>
        {actions !== undefined && <div className="actions">{actions}</div>}
      </header>
      {children}
    </main>
  );
}

export function Card({ title, note, actions, children, flush = false }: { title?: string; note?: ReactNode; actions?: ReactNode; children: ReactNode; flush?: boolean }) {
  const id = useId();
  return (
    <section className={flush ? "card flush" : "card"} aria-labelledby={title === undefined ? undefined : id}>
      {title !== undefined && (
        <header>
          <h2 id={id}>{title}</h2>
          {note !== undefined && <span className="muted">{note}</span>}
          {actions !== undefined && <div className="actions">{actions}</div>}
        </header>
      )}
      {children}
    </section>
  );
}

export type Tone = "good" | "warn" | "bad" | "calm";

export function Badge({ tone = "calm", children }: { tone?: Tone; children: ReactNode }) {
  return <span className={`badge ${tone}`}>{children}</span>;
}

export function Tile({ label, value, note, tone, children }: { label: string; value: ReactNode; note?: ReactNode; tone?: Tone | undefined; children?: ReactNode }) {
  return (
    <div className={`tile ${tone ?? ""}`}>
      <div className="tile-label">{label}</div>
      <div className="tile-value">{value}</div>
      {note !== undefined && <div className="tile-note">{note}</div>}
      {children}
    </div>
  );
}

export function Facts({ rows }: { rows: [string, ReactNode][] }) {
  return (
    <dl className="facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Empty({ children }: { children: ReactNode }) {
  return <p className="empty">{children}</p>;
}

/** A page about clusters, at a server that runs alone. */
export function OnlyInClusters({ title }: { title: string }) {
  return (
    <Page title={title}>
      <Card title="Available in clusters only">
        <p>This server runs alone. Start a cluster with <code>syncpoint cluster up --dir FOLDER</code>, and open the console of one of its proxies.</p>
      </Card>
    </Page>
  );
}

export function Problem({ error, what }: { error: unknown; what?: string }) {
  const known = error instanceof ApiError ? error : null;
  return (
    <div className="problem" role="alert">
      <strong>{what ?? known?.code ?? "Unexpected error"}</strong>
      <p>{error instanceof Error ? error.message : String(error)}</p>
      {known?.permission != null && <p className="muted">Required permission: {known.permission}.</p>}
    </div>
  );
}

export function Loading({ what = "Loading" }: { what?: string }) {
  return (
    <p className="empty" role="status">
      {what} …
    </p>
  );
}

export function Tabs<T extends string>({ tabs, current, onChange }: { tabs: [T, string][]; current: T; onChange: (tab: T) => void }) {
  const row = useRef<HTMLDivElement>(null);
  const move = (by: number) => {
    const next = tabs[(tabs.findIndex(([key]) => key === current) + by + tabs.length) % tabs.length];
    if (next === undefined) return;
    onChange(next[0]);
    row.current?.querySelector<HTMLElement>(`[data-tab="${next[0]}"]`)?.focus();
  };
  return (
    <div className="tabs" role="tablist" ref={row}>
      {tabs.map(([key, label]) => (
        <button
          key={key}
          type="button"
          role="tab"
          data-tab={key}
          aria-selected={key === current}
          tabIndex={key === current ? 0 : -1}
          onClick={() => onChange(key)}
          onKeyDown={(event) => {
            if (event.key === "ArrowRight") move(1);
            if (event.key === "ArrowLeft") move(-1);
          }}
        >
          {label}
        </button>
      ))}
    </div>
  );
}

/** `wrong`: what the server finds wrong with what is in it. */
export function Field({ label, hint, wrong, children }: { label: string; hint?: ReactNode; wrong?: string | undefined; children: (id: string) => ReactNode }) {
  const id = useId();
  return (
    <div className={wrong === undefined ? "field" : "field wrong"}>
      <label htmlFor={id}>{label}</label>
      {children(id)}
      {wrong !== undefined && (
        <div className="hint" role="alert">
          {wrong}
        </div>
      )}
      {hint !== undefined && <div className="hint">{hint}</div>}
    </div>
  );
}

/** What an error says of one field, by the last part of its name, whichever way that is spelled. */
export function wrongOf(error: unknown, ...fields: string[]): string | undefined {
  if (!(error instanceof ApiError)) return undefined;
  const plain = (name: string): string => name.slice(name.lastIndexOf(".") + 1).replaceAll("_", "").toLowerCase();
  const wanted = fields.map(plain);
  return error.violations.find((one) => wanted.includes(plain(one.field)))?.text;
}

export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ReactNode }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    dialog.current?.showModal(); // which gives the focus to the first button, and what is typed goes into the first field
    dialog.current?.querySelector<HTMLElement>(".dialog-body > :not(header) :is(input, textarea, select), .dialog-body > :is(input, textarea, select)")?.focus();
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby={id} onClose={onClose} onClick={(event) => event.target === dialog.current && onClose()}>
      <div className="dialog-body">
        <header>
          <h2 id={id}>{title}</h2>
          <button type="button" className="quiet" aria-label="Close" onClick={onClose}>
            ✕
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

/** Copies a text, and says so for a moment. */
export function CopyButton({ text, label = "Copy", quiet = true }: { text: string; label?: string; quiet?: boolean }) {
  const [done, setDone] = useState(false);
  return (
    <button
      type="button"
      className={quiet ? "quiet" : ""}
      onClick={() => {
        void navigator.clipboard.writeText(text).then(() => {
          setDone(true);
          setTimeout(() => setDone(false), 1200);
        });
      }}
    >
      {done ? "Copied" : label}
    </button>
  );
}

/** `shown`: of an error what is not said at one of the fields; null: nothing. */
export function Confirm({ title, text, action, dangerous = false, disabled = false, shown = (error) => error, onClose, run, children }: { title: string; text: ReactNode; action: string; dangerous?: boolean; disabled?: boolean; shown?: (error: unknown) => unknown; onClose: () => void; run: () => Promise<unknown>; children?: ReactNode }) {
  const [running, setRunning] = useState(false);
  const [error, setError] = useState<unknown>(null);
  return (
    <Dialog title={title} onClose={onClose}>
      {text !== "" && <div>{text}</div>}
      {children}
      {error !== null && shown(error) !== null && <Problem error={error} />}
      <footer>
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button
          type="button"
          className={dangerous ? "danger" : "primary"}
          disabled={running || disabled}
          onClick={() => {
            setRunning(true);
            setError(null);
            run().then(onClose, (failed: unknown) => {
              setError(failed);
              setRunning(false);
            });
          }}
        >
          {running ? "…" : action}
        </button>
      </footer>
    </Dialog>
  );
}
