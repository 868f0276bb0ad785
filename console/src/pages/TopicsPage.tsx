// All topics of a project.

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";

import { call } from "../api/client";
import { LISTED_MAX, topicsQuery, usePermissions } from "../api/queries";
import type { Topic } from "../api/types";
import { shell } from "../lib/copies";
import { duration, idOf, plural } from "../lib/format";
import { topicsRoute } from "../router";
import { CopyAs } from "../ui/CopyAs";
import { StoredMessages, Subscriptions } from "../ui/StateCells";
import { Dialog, Field, Loading, Page, Problem } from "../ui/parts";
import { type Column, VirtualTable } from "../ui/VirtualTable";

export function TopicsPage() {
  const { project } = topicsRoute.useParams();
  const { q = "" } = topicsRoute.useSearch();
  const go = useNavigate({ from: topicsRoute.fullPath });
  const [creating, setCreating] = useState(false);
  const found = useQuery(topicsQuery(project));
  const rights = usePermissions(`projects/${project}`, ["pubsub.topics.create"]);
  const wanted = q.toLowerCase();
  const rows = useMemo(
    () => (found.data ?? []).filter((one) => wanted === "" || idOf(one.name).toLowerCase().includes(wanted) || labelsOf(one).toLowerCase().includes(wanted)),
    [found.data, wanted],
  );
  const columns: Column<Topic>[] = [
    {
      key: "name",
      title: "Topic",
      width: "minmax(150px, 3fr)",
      cell: (one) => (
        <Link to="/p/$project/topics/$topic" params={{ project, topic: idOf(one.name) }}>
          {idOf(one.name)}
        </Link>
      ),
    },
    { key: "labels", title: "Labels", width: "minmax(80px, 2fr)", cell: (one) => <span className="muted">{labelsOf(one) || "–"}</span> },
    { key: "schema", title: "Schema", width: "minmax(60px, 1fr)", cell: (one) => (one.schemaSettings === undefined ? "–" : idOf(one.schemaSettings.schema)) },
    { key: "stored", title: "Stored", width: "110px", right: true, cell: (one) => <StoredMessages name={one.name} /> },
    { key: "subscriptions", title: "Subscriptions", width: "120px", right: true, cell: (one) => <Subscriptions name={one.name} /> },
    { key: "kept", title: "Retention", width: "100px", right: true, cell: (one) => (one.messageRetentionDuration === undefined ? "–" : duration(one.messageRetentionDuration)) },
  ];
  return (
    <Page
      title="Topics"
      of={`${project}${found.data === undefined ? "" : `, ${plural(found.data.length, "topic")}${found.data.length >= LISTED_MAX ? " shown; there may be more" : ""}`}`}
      actions={
        rights.has("pubsub.topics.create") && (
          <button type="button" className="primary" onClick={() => setCreating(true)}>
            Create topic
          </button>
        )
      }
    >
      <input
        className="list-filter"
        type="search"
        aria-label="Filter by name or label"
        placeholder="Filter by name or label"
        defaultValue={q}
        onChange={(event) => void go({ search: event.target.value === "" ? {} : { q: event.target.value }, replace: true })}
      />
      {found.isError && <Problem error={found.error} />}
      {found.isPending && <Loading />}
      {found.isSuccess && <VirtualTable label="Topics" rows={rows} columns={columns} rowKey={(one) => one.name} empty={found.data.length === 0 ? <>This project has no topics yet. Choose Create topic above, or run <code>syncpoint topics create NAME</code>.</> : "No topic matches this filter."} />}
      {creating && <CreateTopic project={project} onClose={() => setCreating(false)} />}
    </Page>
  );
}

const labelsOf = (one: Topic): string =>
  Object.entries(one.labels ?? {})
    .map(([key, value]) => `${key}=${value}`)
    .join(", ");

function CreateTopic({ project, onClose }: { project: string; onClose: () => void }) {
  const [id, setId] = useState("");
  const [kept, setKept] = useState("");
  const go = useNavigate();
  const queries = useQueryClient();
  const request = { name: `projects/${project}/topics/${id}`, ...(kept === "" ? {} : { messageRetentionDuration: `${Number(kept) * 3600}s` }) };
  const made = useMutation({
    mutationFn: () => call<Topic>("Publisher.CreateTopic", request),
    onSuccess: () => {
      void queries.invalidateQueries({ queryKey: ["topics"] });
      void queries.invalidateQueries({ queryKey: ["projects"] });
      void go({ to: "/p/$project/topics/$topic", params: { project, topic: id } });
    },
  });
  return (
    <Dialog title="Create a topic" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          made.mutate();
        }}
      >
        <Field label="Name" hint="3 to 255 characters: a letter, then letters, digits, or -._~+%">
          {(field) => <input id={field} required autoFocus value={id} onChange={(event) => setId(event.target.value)} />}
        </Field>
        <Field label="Retention (hours)" hint="Keeps acknowledged messages too, so that subscriptions can seek back to them. Empty: keep messages only until all subscriptions have acknowledged them.">
          {(field) => <input id={field} type="number" min="0.17" max="744" step="any" value={kept} onChange={(event) => setKept(event.target.value)} />}
        </Field>
        {made.isError && <Problem error={made.error} />}
        <footer>
          <CopyAs
            cli={`syncpoint topics create ${shell(id || "NAME")} --project ${shell(project)}${kept === "" ? "" : ` --message-retention-duration ${kept}h`}`}
            method="Publisher.CreateTopic"
            request={request}
          />
          <button type="submit" className="primary" disabled={made.isPending}>
            Create
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
