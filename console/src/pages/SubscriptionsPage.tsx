// All subscriptions of a project, and where each stands.

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";

import { type ListedSubscription, subscriptionsQuery } from "../api/lists";
import type { Subscription } from "../api/types";
import { bytes, compact, count, idOf, plural, projectOf, rate } from "../lib/format";
import { subscriptionsRoute } from "../router";
import { Page } from "../ui/parts";
import { ageOf, ResourceList, sparkColumn } from "../ui/ResourceList";
import type { TableColumn } from "../ui/Table";

/** How messages get to whoever wants them, in a word. */
export function deliveryOf(one: Subscription): string {
  if (one.detached) return "detached";
  if (one.pushConfig?.pushEndpoint) return "push";
  if (one.cloudStorageConfig?.bucket) return "export";
  return "pull";
}

const columnsOf = (project: string): TableColumn<ListedSubscription>[] => [
  {
    title: "Subscription",
    sort: "name",
    cell: (one) => (
      <Link to="/p/$project/subscriptions/$subscription" params={{ project, subscription: idOf(one.name) }}>
        {idOf(one.name)}
      </Link>
    ),
  },
  {
    title: "Topic",
    sort: "topic",
    cell: (one) =>
      one.topic === "" ? (
        <span className="muted">deleted</span>
      ) : (
        <Link to="/p/$project/topics/$topic" params={{ project: projectOf(one.topic), topic: idOf(one.topic) }}>
          {idOf(one.topic)}
        </Link>
      ),
  },
  { title: "Delivery", sort: "delivery", cell: (one) => one.delivery },
  { title: "Connected", sort: "-connected", right: true, cell: (one) => (one.connected === null ? "" : count(one.connected)) },
  { title: "Delivered", sort: "-rate", right: true, cell: (one) => rate(one.rate) },
  sparkColumn("Messages delivered"),
  { title: "Backlog", sort: "-backlog", right: true, cell: (one) => (one.backlog === null ? "" : compact(one.backlog)) },
  { title: "Size", sort: "-bytes", right: true, cell: (one) => (one.bytes === null ? "" : one.bytes === 0 ? "–" : bytes(one.bytes)) },
  { title: "Oldest", sort: "-oldest", right: true, cell: (one) => ageOf(one.oldest) },
];

export function SubscriptionsPage() {
  const { project } = subscriptionsRoute.useParams();
  const search = subscriptionsRoute.useSearch();
  const go = useNavigate({ from: subscriptionsRoute.fullPath });
  const found = useQuery(subscriptionsQuery(project, search));
  return (
    <Page title="Subscriptions" of={`${project}${found.data === undefined ? "" : `, ${plural(found.data.total, "subscription")}`}`}>
      <ResourceList
        label="Subscriptions"
        filter="Filter by name or topic"
        search={search}
        found={found}
        columns={columnsOf(project)}
        empty="This project has no subscriptions yet. Open a topic and choose Create subscription."
        onSearch={(next) => void go({ search: next, replace: true })}
      />
    </Page>
  );
}
