// Questions to the server, cached and asked again by TanStack Query.

import { infiniteQueryOptions, queryOptions, useQuery } from "@tanstack/react-query";
import { createContext, useContext } from "react";

import { type About, call, send } from "./client";
import type { Subscription, Topic } from "./types";

export const AboutContext = createContext<About>({ version: "", identifies: false, audits: false, routes: {} });

const PAGE = 1000;
/** What lists show at most; beyond it the search of the command line is the better tool. */
export const LISTED_MAX = 20_000;

async function all<T>(method: string, request: Record<string, string>, field: string, fields: string, signal: AbortSignal): Promise<T[]> {
  const found: T[] = [];
  let pageToken = "";
  do {
    const page = await call<Record<string, T[] | string>>(method, { ...request, pageSize: PAGE, pageToken, fields: `nextPageToken,${field}(${fields})` }, signal);
    found.push(...((page[field] as T[] | undefined) ?? []));
    pageToken = (page["nextPageToken"] as string | undefined) ?? "";
  } while (pageToken !== "" && found.length < LISTED_MAX);
  return found;
}

export const topicsQuery = (project: string) =>
  queryOptions({
    queryKey: ["topics", project],
    queryFn: ({ signal }) => all<Topic>("Publisher.ListTopics", { project: `projects/${project}` }, "topics", "name,labels,messageRetentionDuration,schemaSettings", signal),
    staleTime: 20_000,
  });

export const subscriptionsQuery = (project: string) =>
  queryOptions({
    queryKey: ["subscriptions", project],
    queryFn: ({ signal }) =>
      all<Subscription>(
        "Subscriber.ListSubscriptions",
        { project: `projects/${project}` },
        "subscriptions",
        "name,topic,labels,filter,detached,pushConfig,cloudStorageConfig,deadLetterPolicy,enableMessageOrdering,enableExactlyOnceDelivery",
        signal,
      ),
    staleTime: 20_000,
  });

export const projectsQuery = queryOptions({
  queryKey: ["projects"],
  queryFn: () => send<{ projects: string[] }>({ verb: "GET", path: "/console/api/projects", body: null }).then((found) => found.projects.map((one) => one.replace("projects/", ""))),
  staleTime: 10_000,
});

/** One method, one request; asked again every `everyMs`, if that is given. */
export const callQuery = <T>(method: string, request: Record<string, string | number> = {}, everyMs?: number) =>
  queryOptions({
    queryKey: [method, request],
    queryFn: ({ signal }) => call<T>(method, request, signal),
    ...(everyMs === undefined ? {} : { refetchInterval: everyMs }),
  });

export const pagesQuery = <T extends { nextPageToken?: string }>(method: string, request: Record<string, string | number>) =>
  infiniteQueryOptions({
    queryKey: ["pages", method, request],
    queryFn: ({ pageParam, signal }) => call<T>(method, { ...request, pageToken: pageParam }, signal),
    initialPageParam: "",
    getNextPageParam: (page: T) => (page.nextPageToken === undefined || page.nextPageToken === "" ? null : page.nextPageToken),
    staleTime: 0,
    gcTime: 0,
  });

/** Which of the permissions the caller has on a topic, a subscription or a project; all where callers are not asked. */
export function usePermissions(resource: string, permissions: string[]): { has: (permission: string) => boolean; known: boolean } {
  const { identifies } = useContext(AboutContext);
  const { data } = useQuery({
    queryKey: ["permissions", resource, permissions],
    queryFn: () => send<{ permissions?: string[] }>({ verb: "POST", path: `/v1/${resource.split("/").map(encodeURIComponent).join("/")}:testIamPermissions`, body: { permissions } }),
    enabled: identifies,
    staleTime: 30_000,
  });
  return { has: (permission) => !identifies || (data?.permissions ?? []).includes(permission), known: !identifies || data !== undefined };
}
