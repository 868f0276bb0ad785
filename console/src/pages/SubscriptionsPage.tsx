// All subscriptions of a project, with where they stand while they are in view.

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";

import { LISTED_MAX, subscriptionsQuery } from "../api/queries";
import type { Subscription } from "../api/types";
import { idOf, plural, projectOf } from "../lib/format";
import { subscriptionsRoute } from "../router";
import { Loading, Page, Problem } from "../ui/parts";
import { Backlog, OldestAge, Subscribers } from "../ui/StateCells";
import { type Column, VirtualTable } from "../ui/VirtualTable";

/** How messages get to whoever wants them, in a word. */
export function deliveryOf(one: Subscription): string {
  if (one.detached) return "detached";
  if (one.pushConfig?.pushEndpoint) return "push";
  if (one.cloudStorageConfig?.bucket) return "export";
  return "pull";
}

export function SubscriptionsPage() {
  const { project } = subscriptionsRoute.useParams();
  const { q = "" } = subscriptionsRoute.useSearch();
  const go = useNavigate({ from: subscriptionsRoute.fullPath });
  const found = useQuery(subscriptionsQuery(project));
  const wanted = q.toLowerCase();
  const rows = useMemo(() => (found.data ?? []).filter((one) => wanted === "" || idOf(one.name).toLowerCase().includes(wanted) || idOf(one.topic).toLowerCase().includes(wanted)), [found.data, wanted]);
  const columns: Column<Subscription>[] = [
    {
      key: "name",
      title: "Subscription",
      width: "minmax(150px, 3fr)",
      cell: (one) => (
        <Link to="/p/$project/subscriptions/$subscription" params={{ project, subscription: idOf(one.name) }}>
          {idOf(one.name)}
        </Link>
      ),
    },
    {
      key: "topic",
      title: "Topic",
      width: "minmax(110px, 2fr)",
      cell: (one) =>
        one.topic.startsWith("_") ? (
          <span className="muted">deleted</span>
        ) : (
          <Link to="/p/$project/topics/$topic" params={{ project: projectOf(one.topic), topic: idOf(one.topic) }}>
            {idOf(one.topic)}
          </Link>
        ),
    },
    { key: "delivery", title: "Delivery", width: "74px", cell: deliveryOf },
    { key: "subscribers", title: "Connected", width: "84px", right: true, cell: (one) => <Subscribers name={one.name} /> },
    { key: "backlog", title: "Backlog", width: "80px", right: true, cell: (one) => <Backlog name={one.name} /> },
    { key: "oldest", title: "Oldest", width: "90px", right: true, cell: (one) => <OldestAge name={one.name} /> },
  ];
  return (
    <Page title="Subscriptions" of={`${project}${found.data === undefined ? "" : `, ${plural(found.data.length, "subscription")}${found.data.length >= LISTED_MAX ? " shown; there may be more" : ""}`}`}>
      <input
        className="list-filter"
        type="search"
        aria-label="Filter by name or topic"
        placeholder="Filter by name or topic"
        defaultValue={q}
        onChange={(event) => void go({ search: event.target.value === "" ? {} : { q: event.target.value }, replace: true })}
      />
      {found.isError && <Problem error={found.error} />}
      {found.isPending && <Loading />}
      {found.isSuccess && (
        <VirtualTable label="Subscriptions" rows={rows} columns={columns} rowKey={(one) => one.name} empty={found.data.length === 0 ? "This project has no subscriptions yet. Open a topic and choose Create subscription." : "No subscription matches this filter."} />
      )}
    </Page>
  );
}
