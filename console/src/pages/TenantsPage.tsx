// Tenants: who owns which projects, what they may use, and what they use.

import { useQueries, useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";

import { serves } from "../api/client";
import { subscriptionsQuery, topicsQuery } from "../api/lists";
import { historyQuery } from "../api/monitor";
import { callQuery } from "../api/queries";
import { bytes, compact, count, num, plural } from "../lib/format";
import { tenantsRoute } from "../router";
import { CopyAs } from "../ui/CopyAs";
import { Card, Empty, Facts, Loading, Page, Problem } from "../ui/parts";
import { Table } from "../ui/Table";

interface Quota {
  requestsPerS?: number;
  bytesPerS?: number;
  outstandingBytes?: string;
  connections?: string;
  streams?: string;
  topics?: string;
  subscriptions?: string;
  cpu?: number;
}

interface Tenant {
  name: string;
  displayName?: string;
  owners?: string[];
  projects?: string[];
  allowedRegions?: string[];
  quota?: Quota;
  projectQuotas?: Record<string, Quota>;
  weight?: number;
}

const LOOKS_S = 300;
/** What history knows of the use of a quota, by project. */
const USED = {
  requestsPerS: "syncpoint_topic_requests_total",
  bytesPerS: "syncpoint_topic_bytes_total",
  outstandingBytes: "syncpoint_subscription_outstanding_bytes",
} as const;

const QUOTAS: [keyof Quota, string, (value: number) => string][] = [
  ["requestsPerS", "Publish requests", (value) => `${compact(value)}/s`],
  ["bytesPerS", "Published bytes", (value) => `${bytes(value)}/s`],
  ["outstandingBytes", "Outstanding bytes", bytes],
  ["topics", "Topics", count],
  ["subscriptions", "Subscriptions", count],
  ["connections", "Connections", count],
  ["streams", "Streams", count],
  ["cpu", "CPU", (value) => `${compact(value)} cores`],
];

const shortOf = (project: string): string => project.replace(/^projects\//, "");
const bounds = (quota: Quota | undefined): string =>
  QUOTAS.filter(([key]) => num(quota?.[key]) > 0)
    .map(([key, title, shown]) => `${title.toLowerCase()} ${shown(num(quota?.[key]))}`)
    .join(", ");

export function TenantsPage() {
  const { tenant: chosen } = tenantsRoute.useSearch();
  const go = useNavigate({ from: tenantsRoute.fullPath });
  const found = useQuery(callQuery<{ tenants?: Tenant[] }>("Admin.ListTenants", { pageSize: 1000 }, 30_000));
  const tenants = found.data?.tenants ?? [];
  return (
    <Page title="Tenants" of="Owners of projects, the bounds that their projects share, and what they use">
      <Card title="Tenants" flush actions={<CopyAs cli="syncpoint tenants list" method="Admin.ListTenants" request={{}} />}>
        {found.isPending && <Loading />}
        {found.isError && <Problem error={found.error} />}
        {found.isSuccess && tenants.length === 0 && (
          <Empty>
            There are no tenants: every project stands alone. Create one with <code>syncpoint tenants create NAME --owner user:ana@example.com --owned-project PROJECT</code>.
          </Empty>
        )}
        <Table
          label="Tenants"
          rows={tenants}
          rowKey={(one) => one.name}
          below={(one) => one.name === chosen && <Opened tenant={one} />}
          columns={[
            {
              title: "Tenant",
              cell: (one) => (
                <>
                  <button type="button" className="link" aria-expanded={one.name === chosen} onClick={() => void go({ search: one.name === chosen ? {} : { tenant: one.name }, replace: true })}>
                    {one.name}
                  </button>
                  {one.displayName !== undefined && <div className="muted small">{one.displayName}</div>}
                </>
              ),
            },
            { title: "Owners", style: "wrap", cell: (one) => (one.owners ?? []).join(", ") || <span className="muted">none</span> },
            { title: "Projects", style: "wrap", cell: (one) => ((one.projects ?? []).length > 5 ? plural((one.projects ?? []).length, "project") : (one.projects ?? []).map(shortOf).join(", ")) },
            { title: "Bounds", style: "wrap", cell: (one) => bounds(one.quota) || <span className="muted">none</span> },
          ]}
        />
      </Card>
    </Page>
  );
}

/** By project: the newest numbers of history. */
function useUse(): (key: keyof Quota, project: string) => number | null {
  const keys = Object.keys(USED) as (keyof typeof USED)[];
  const found = useQueries({ queries: keys.map((key) => ({ ...historyQuery({ family: USED[key], groupBy: ["project"] }, LOOKS_S), enabled: serves("Admin.QueryHistory"), retry: false })) });
  return (key, project) => {
    const at = keys.indexOf(key as keyof typeof USED);
    const history = at < 0 ? undefined : found[at]?.data;
    if (history === undefined) return null;
    return history.series.find((one) => one.labels["project"] === shortOf(project))?.values.findLast((value) => value !== null) ?? 0;
  };
}

function Opened({ tenant }: { tenant: Tenant }) {
  const projects = tenant.projects ?? [];
  const use = useUse();
  const topics = useQueries({ queries: projects.slice(0, 50).map((one) => topicsQuery(shortOf(one), {}, 1)) });
  const subscriptions = useQueries({ queries: projects.slice(0, 50).map((one) => subscriptionsQuery(shortOf(one), {}, 1)) });
  const used = (key: keyof Quota, at: number): number | null => (key === "topics" ? (topics[at]?.data?.total ?? null) : key === "subscriptions" ? (subscriptions[at]?.data?.total ?? null) : use(key, projects[at] ?? ""));
  const shownUse = (key: keyof Quota, at: number, shown: (value: number) => string): string => {
    const value = used(key, at);
    const most = num(tenant.projectQuotas?.[projects[at] ?? ""]?.[key]);
    return `${value === null ? "–" : shown(value)}${most > 0 ? ` of ${shown(most)}` : ""}`;
  };
  const together = (key: keyof Quota): number | null => projects.map((_, at) => used(key, at)).reduce<number | null>((all, one) => (one === null ? all : (all ?? 0) + one), null);
  const shown = QUOTAS.slice(0, 5);
  return (
    <div className="opened-body">
      <Facts
        rows={[
          ["Regions", (tenant.allowedRegions ?? []).join(", ") || "all"],
          ["Weight", count(tenant.weight ?? 1)],
          ...QUOTAS.flatMap(([key, title, words]): [string, string][] => {
            const most = num(tenant.quota?.[key]);
            const value = together(key);
            return most > 0 || value !== null ? [[title, `${value === null ? "–" : words(value)}${most > 0 ? ` of ${words(most)}${key === "topics" || key === "subscriptions" ? "" : " in each process"}` : ", no bound"}`]] : [];
          }),
        ]}
      />
      <Table
        label={`Projects of ${tenant.name}`}
        rows={projects}
        rowKey={(one) => one}
        columns={[
          {
            title: "Project",
            cell: (one) => (
              <Link to="/p/$project/topics" params={{ project: shortOf(one) }}>
                {shortOf(one)}
              </Link>
            ),
          },
          ...shown.map(([key, title, words]) => ({ title, right: true, cell: (one: string) => shownUse(key, projects.indexOf(one), words) })),
        ]}
      />
      <p className="muted small">Use is that of the topics and subscriptions that history names, over all processes. A bound of rates holds in each process.</p>
    </div>
  );
}
