// The page of one topic or one subscription: its name, its tabs, and how it is deleted.

import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";

import { call } from "../api/client";
import { shell } from "../lib/copies";
import { idOf, projectOf } from "../lib/format";
import { CopyAs } from "./CopyAs";
import { Confirm, CopyButton, Loading, Page, Problem, Tabs } from "./parts";

type Kind = "topic" | "subscription";

const DELETE: Record<Kind, { method: string; text: string }> = {
  topic: { method: "Publisher.DeleteTopic", text: "Its subscriptions keep their unacknowledged messages and receive nothing new. Publishing to this topic fails." },
  subscription: { method: "Subscriber.DeleteSubscription", text: "Its unacknowledged messages are deleted with it." },
};

interface Tabbed<T extends string> {
  tabs: [T, string][];
  current: T;
  onChange: (tab: T) => void;
}

export function ResourcePage<T extends string>({ kind, name, mayDelete, actions, tabbed, children }: { kind: Kind; name: string; mayDelete: boolean; actions?: ReactNode; tabbed: Tabbed<T>; children: ReactNode }) {
  const [deleting, setDeleting] = useState(false);
  return (
    <Page
      title={idOf(name)}
      of={
        <>
          {kind === "topic" ? "Topic" : "Subscription"} {name} <CopyButton text={name} />
        </>
      }
      actions={
        <>
          {actions}
          {mayDelete && (
            <button type="button" className="danger" onClick={() => setDeleting(true)}>
              Delete
            </button>
          )}
        </>
      }
    >
      <Tabs {...tabbed} />
      {children}
      {deleting && <Delete kind={kind} name={name} onClose={() => setDeleting(false)} />}
    </Page>
  );
}

/** While it is asked for, or where it cannot be had. */
export function NoResource({ name, error }: { name: string; error: unknown }) {
  return (
    <Page title={idOf(name)} of={projectOf(name)}>
      {error === null ? <Loading /> : <Problem error={error} />}
    </Page>
  );
}

function Delete({ kind, name, onClose }: { kind: Kind; name: string; onClose: () => void }) {
  const go = useNavigate();
  const queries = useQueryClient();
  const { method, text } = DELETE[kind];
  const [id, project] = [idOf(name), projectOf(name)];
  const request = { [kind]: name };
  return (
    <Confirm
      title={`Delete ${id}?`}
      text={text}
      action={`Delete ${kind}`}
      dangerous
      onClose={onClose}
      run={async () => {
        await call(method, request);
        await queries.invalidateQueries();
        void go({ to: `/p/$project/${kind}s`, params: { project } });
      }}
    >
      <CopyAs cli={`syncpoint ${kind}s delete ${shell(id)} --project ${shell(project)}`} method={method} request={request} />
    </Confirm>
  );
}

/** What stopped the live numbers of a page, and what they are without. */
export function NotCounted({ error, unknown = [] }: { error: unknown; unknown?: string[] | undefined }) {
  return (
    <>
      {error !== null && <Problem error={error} />}
      {unknown.map((one) => (
        <p key={one} className="note warn">
          Not counted: {one}
        </p>
      ))}
    </>
  );
}
