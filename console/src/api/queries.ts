// Questions to the server, cached and asked again by TanStack Query.

import { infiniteQueryOptions, queryOptions, useQuery } from "@tanstack/react-query";
import { createContext, useContext } from "react";

import { type About, call, send } from "./client";

export const AboutContext = createContext<About>({ version: "", identifies: false, audits: false, routes: {} });

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
