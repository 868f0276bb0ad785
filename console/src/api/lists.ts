// Pages of topics and subscriptions, filtered and sorted by the server.

import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { send } from "./client";

export const PAGE_ROWS = 50;

interface Listed {
  name: string;
  /** Messages a second now, and over the last hour; null: it is unknown. */
  rate: number | null;
  spark: (number | null)[];
  /** Not acknowledged: messages, and the age of the oldest one in seconds. */
  backlog: number | null;
  oldest: number | null;
}

export interface ListedTopic extends Listed {
  labels: Record<string, string>;
  schema: string;
  retention: number;
  subscriptions: number;
  stored: number | null;
}

export interface ListedSubscription extends Listed {
  /** Empty: it was deleted. */
  topic: string;
  delivery: string;
  connected: number | null;
  bytes: number | null;
}

export interface ListPage<T> {
  rows: T[];
  total: number;
  matched: number;
  /** Others are busy, too, and history does not name them. */
  partial: boolean;
  unknown: string[];
}

/** What of a list is shown; also the search of its address. `sort`: a column, with - before it the largest first. */
export interface ListSearch {
  q?: string;
  sort?: string;
  begin?: string;
}

const listQuery = <T>(kind: string, project: string, search: ListSearch, size: number) =>
  queryOptions({
    queryKey: ["list", kind, project, search, size],
    queryFn: ({ signal }) => send<ListPage<T>>({ verb: "GET", path: `/console/api/${kind}?${new URLSearchParams({ project: `projects/${project}`, size: String(size), ...search }).toString()}`, body: null }, signal),
    placeholderData: keepPreviousData,
    refetchInterval: 10_000,
    staleTime: 2_000,
  });

export const topicsQuery = (project: string, search: ListSearch = {}, size = PAGE_ROWS) => listQuery<ListedTopic>("topics", project, search, size);

export const subscriptionsQuery = (project: string, search: ListSearch = {}, size = PAGE_ROWS) => listQuery<ListedSubscription>("subscriptions", project, search, size);
