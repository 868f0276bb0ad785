// The audit logs of all processes as one: calls of the page "Audit log".

import { infiniteQueryOptions } from "@tanstack/react-query";

import { send } from "./client";

export interface AuditEntry {
  n?: number;
  time?: string;
  process: string;
  who?: string;
  peer?: string;
  method?: string;
  permission?: string;
  resource?: string;
  allowed?: boolean;
  policy?: number;
  why?: string;
  left_out?: number;
  before?: string;
  broken?: boolean;
}

export interface AuditPage {
  entries: AuditEntry[];
  processes: string[];
  unknown: string[];
  nextPageToken: string;
}

export interface AuditChain {
  process: string;
  file: string;
  lines: number;
  hash: string;
  broken: string;
}

export const AUDIT_FILTERS = ["who", "method", "resource", "outcome", "since", "until", "process"] as const;
export type AuditSearch = { [name in (typeof AUDIT_FILTERS)[number]]?: string };

const asked = (path: string, fields: Record<string, string>) => ({ verb: "GET", path: `/console/api/audit${path}?${new URLSearchParams(fields).toString()}`, body: null });

export const auditQuery = (search: AuditSearch) =>
  infiniteQueryOptions({
    queryKey: ["audit", search],
    queryFn: ({ pageParam, signal }) => send<AuditPage>(asked("", { ...search, ...(pageParam === "" ? {} : { pageToken: pageParam }) }), signal),
    initialPageParam: "",
    getNextPageParam: (page: AuditPage) => (page.nextPageToken === "" ? null : page.nextPageToken),
    staleTime: 0,
    gcTime: 0,
  });

export const verifyAudit = () => send<{ logs: AuditChain[]; unknown: string[] }>(asked("/verified", {}));
