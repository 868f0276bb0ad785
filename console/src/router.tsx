// The addresses of all pages. Everything that a page shows can be named by its address, and sent to somebody.

import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from "@tanstack/react-router";

import type { ListSearch } from "./api/lists";
import { type RangeName, RANGES } from "./api/monitor";
import { BY_NAMES, type GroupName } from "./lib/panels";
import { readSearch, writeSearch } from "./lib/search";
import { AUDIT_FILTERS, type AuditSearch } from "./api/audit";
import { OverviewPage } from "./pages/OverviewPage";
import { SUBSCRIPTION_TABS, SubscriptionPage, type SubscriptionTab } from "./pages/SubscriptionPage";
import { SubscriptionsPage } from "./pages/SubscriptionsPage";
import { TOPIC_TABS, TopicPage, type TopicTab } from "./pages/TopicPage";
import { TopicsPage } from "./pages/TopicsPage";
import { Empty, Page } from "./ui/parts";
import { Shell } from "./ui/Shell";

const text = (value: unknown): string => (typeof value === "string" || typeof value === "number" ? String(value) : "");

/** What the browser of messages looks for; also the search of a page's address. */
export interface MessageSearch {
  since?: string;
  offset?: string;
  key?: string;
  filter?: string;
  id?: string;
}

const messageSearch = (search: Record<string, unknown>): MessageSearch => texts(search, "since", "offset", "key", "filter", "id");

function oneOf<T extends string>(value: unknown, known: readonly T[]): { tab?: T } {
  const found = known.find((one) => one === value);
  return found === undefined ? {} : { tab: found };
}

const root = createRootRoute({
  component: Shell,
  notFoundComponent: () => (
    <Page title="Page not found">
      <Empty>This address has no page. Press Ctrl-K to search topics, subscriptions and pages.</Empty>
    </Page>
  ),
});

const searched = (search: Record<string, unknown>): ListSearch => texts(search, "q", "sort", "begin");

const range = (value: unknown): RangeName | undefined => RANGES.find(([name]) => name === value)?.[0];

/** The texts that are given, by their names. */
function texts<T extends string>(search: Record<string, unknown>, ...names: T[]): Partial<Record<T, string>> {
  const found: Partial<Record<T, string>> = {};
  for (const name of names) if (text(search[name]) !== "") found[name] = text(search[name]);
  return found;
}

export interface HistorySearch {
  panel?: string | undefined;
  family?: string | undefined;
  by?: GroupName | undefined;
  range?: RangeName | undefined;
  only?: string | undefined;
}

function historySearch(search: Record<string, unknown>): HistorySearch {
  const by = text(search["by"]);
  const shown = range(search["range"]);
  return { ...texts(search, "panel", "family", "only"), ...(by in BY_NAMES ? { by: by as GroupName } : {}), ...(shown === undefined ? {} : { range: shown }) };
}

function proberSearch(search: Record<string, unknown>): { prober?: string; endpoint?: string; range?: RangeName } {
  const shown = range(search["range"]);
  return { ...texts(search, "prober", "endpoint"), ...(shown === undefined ? {} : { range: shown }) };
}

export const objectivesRoute = createRoute({
  getParentRoute: () => root,
  path: "/objectives",
  validateSearch: (search: Record<string, unknown>): { slo?: string } => texts(search, "slo"),
  component: lazyRouteComponent(() => import("./pages/ObjectivesPage"), "ObjectivesPage"),
});
export const alertsRoute = createRoute({
  getParentRoute: () => root,
  path: "/alerts",
  validateSearch: (search: Record<string, unknown>): { alert?: string } => texts(search, "alert"),
  component: lazyRouteComponent(() => import("./pages/AlertsPage"), "AlertsPage"),
});
export const historyRoute = createRoute({ getParentRoute: () => root, path: "/history", validateSearch: historySearch, component: lazyRouteComponent(() => import("./pages/HistoryPage"), "HistoryPage") });
export const probersRoute = createRoute({ getParentRoute: () => root, path: "/probers", validateSearch: proberSearch, component: lazyRouteComponent(() => import("./pages/ProbersPage"), "ProbersPage") });
export const rolloutsRoute = createRoute({ getParentRoute: () => root, path: "/rollouts", component: lazyRouteComponent(() => import("./pages/RolloutsPage"), "RolloutsPage") });
/** Of a page that takes several of one thing; one alone need not be a list. */
const listed =
  <N extends string>(name: N) =>
  (search: Record<string, unknown>): { [name in N]?: string[] } => {
    const given = search[name];
    const found = (Array.isArray(given) ? given : [given]).map(text).filter((one) => one !== "");
    return (found.length === 0 ? {} : { [name]: found }) as { [name in N]?: string[] };
  };

export const overviewRoute = createRoute({ getParentRoute: () => root, path: "/", component: OverviewPage });
export const clusterRoute = createRoute({ getParentRoute: () => root, path: "/cluster", component: lazyRouteComponent(() => import("./pages/ClusterPage"), "ClusterPage") });
export const drainsRoute = createRoute({ getParentRoute: () => root, path: "/drains", component: lazyRouteComponent(() => import("./pages/DrainsPage"), "DrainsPage") });
export const atRiskRoute = createRoute({ getParentRoute: () => root, path: "/at-risk", component: lazyRouteComponent(() => import("./pages/AtRiskPage"), "AtRiskPage"), validateSearch: listed("gone") });
export const auditRoute = createRoute({ getParentRoute: () => root, path: "/audit", component: lazyRouteComponent(() => import("./pages/AuditPage"), "AuditPage"), validateSearch: (search: Record<string, unknown>): AuditSearch => texts(search, ...AUDIT_FILTERS) });
export const flowsRoute = createRoute({ getParentRoute: () => root, path: "/federation", component: lazyRouteComponent(() => import("./pages/FlowsPage"), "FlowsPage") });
export const tenantsRoute = createRoute({ getParentRoute: () => root, path: "/tenants", component: lazyRouteComponent(() => import("./pages/TenantsPage"), "TenantsPage"), validateSearch: (search: Record<string, unknown>): { tenant?: string } => texts(search, "tenant") });
export const projectRoute = createRoute({
  getParentRoute: () => root,
  path: "/p/$project",
  beforeLoad: ({ params, location }) => {
    if (location.pathname.replace(/\/$/, "").endsWith(`/p/${params.project}`)) throw redirect({ to: "/p/$project/topics", params });
  },
});
export const topicsRoute = createRoute({ getParentRoute: () => projectRoute, path: "/topics", component: TopicsPage, validateSearch: searched });
export const topicRoute = createRoute({
  getParentRoute: () => projectRoute,
  path: "/topics/$topic",
  component: TopicPage,
  validateSearch: (search: Record<string, unknown>): MessageSearch & { tab?: TopicTab } => ({ ...messageSearch(search), ...oneOf(search["tab"], TOPIC_TABS) }),
});
export const subscriptionsRoute = createRoute({ getParentRoute: () => projectRoute, path: "/subscriptions", component: SubscriptionsPage, validateSearch: searched });
export const subscriptionRoute = createRoute({
  getParentRoute: () => projectRoute,
  path: "/subscriptions/$subscription",
  component: SubscriptionPage,
  validateSearch: (search: Record<string, unknown>): MessageSearch & { tab?: SubscriptionTab } => ({ ...messageSearch(search), ...oneOf(search["tab"], SUBSCRIPTION_TABS) }),
});
export const snapshotsRoute = createRoute({ getParentRoute: () => projectRoute, path: "/snapshots", component: lazyRouteComponent(() => import("./pages/SnapshotsPage"), "SnapshotsPage") });
export const schemasRoute = createRoute({ getParentRoute: () => projectRoute, path: "/schemas", component: lazyRouteComponent(() => import("./pages/SchemasPage"), "SchemasPage") });

const tree = root.addChildren([
  overviewRoute,
  clusterRoute,
  drainsRoute,
  objectivesRoute,
  alertsRoute,
  historyRoute,
  probersRoute,
  rolloutsRoute,
  atRiskRoute,
  auditRoute,
  flowsRoute,
  tenantsRoute,
  projectRoute.addChildren([topicsRoute, topicRoute, subscriptionsRoute, subscriptionRoute, snapshotsRoute, schemasRoute]),
]);

export const router = createRouter({
  routeTree: tree,
  basepath: "/console",
  defaultPreload: false,
  scrollRestoration: false,
  parseSearch: readSearch,
  stringifySearch: writeSearch,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
