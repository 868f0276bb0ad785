// All topics of a project.

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import { type ListedTopic, topicsQuery } from "../api/lists";
import { usePermissions } from "../api/queries";
import { TOPIC } from "../api/settings";
import { compact, count, duration, idOf, plural, rate } from "../lib/format";
import { topicsRoute } from "../router";
import { CreateResource } from "../ui/CreateResource";
import { Page } from "../ui/parts";
import { ageOf, ResourceList, sparkColumn } from "../ui/ResourceList";
import type { TableColumn } from "../ui/Table";

const columnsOf = (project: string): TableColumn<ListedTopic>[] => [
  {
    title: "Topic",
    sort: "name",
    cell: (one) => (
      <>
        <Link to="/p/$project/topics/$topic" params={{ project, topic: idOf(one.name) }}>
          {idOf(one.name)}
        </Link>
        <div className="muted small">{[labelsOf(one), one.schema === "" ? "" : `schema ${idOf(one.schema)}`].filter((part) => part !== "").join(" · ")}</div>
      </>
    ),
  },
  { title: "Published", sort: "-rate", right: true, cell: (one) => rate(one.rate) },
  sparkColumn("Messages published"),
  { title: "Stored", sort: "-stored", right: true, cell: (one) => (one.stored === null ? "" : compact(one.stored)) },
  { title: "Subscriptions", sort: "-subscriptions", right: true, cell: (one) => count(one.subscriptions) },
  { title: "Backlog", sort: "-backlog", right: true, cell: (one) => (one.backlog === null ? "" : compact(one.backlog)) },
  { title: "Oldest", sort: "-oldest", right: true, cell: (one) => ageOf(one.oldest) },
  { title: "Retention", sort: "-retention", right: true, cell: (one) => (one.retention === 0 ? "–" : duration(one.retention)) },
];

export function TopicsPage() {
  const { project } = topicsRoute.useParams();
  const search = topicsRoute.useSearch();
  const go = useNavigate({ from: topicsRoute.fullPath });
  const [creating, setCreating] = useState(false);
  const found = useQuery(topicsQuery(project, search));
  const rights = usePermissions(`projects/${project}`, ["pubsub.topics.create"]);
  return (
    <Page
      title="Topics"
      of={`${project}${found.data === undefined ? "" : `, ${plural(found.data.total, "topic")}`}`}
      actions={
        rights.has("pubsub.topics.create") && (
          <button type="button" className="primary" onClick={() => setCreating(true)}>
            Create topic
          </button>
        )
      }
    >
      <ResourceList
        label="Topics"
        filter="Filter by name or label"
        search={search}
        found={found}
        columns={columnsOf(project)}
        empty={<>This project has no topics yet. Choose Create topic above, or run <code>syncpoint topics create NAME</code>.</>}
        onSearch={(next) => void go({ search: next, replace: true })}
      />
      {creating && <CreateResource kind={TOPIC} project={project} onClose={() => setCreating(false)} />}
    </Page>
  );
}

const labelsOf = (one: ListedTopic): string =>
  Object.entries(one.labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(", ");
