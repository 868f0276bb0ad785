// The newest rollout, as its controller writes it into the metadata.

import { queryOptions } from "@tanstack/react-query";

import { send } from "./client";

export interface Rollout {
  name: string;
  version: string;
  commit?: string;
  state: "running" | "rolling back" | "done" | "rolled back";
  step?: string;
  steps?: string[];
  deployed?: boolean;
  watched?: string;
  watch?: string;
  beginTime?: string;
  lookTime?: string;
  endTime?: string;
  restarting?: string;
  restartTime?: string;
  waitsFor?: string;
  reason?: string;
  shares?: Record<string, number>;
  figures?: Record<string, number>;
  problems?: string[];
  events?: { time?: string; text: string }[];
  controller?: string;
  abortedBy?: string;
}

/** null: there was none yet. */
export const rolloutQuery = queryOptions({
  queryKey: ["Admin.GetRollout"],
  queryFn: async ({ signal }): Promise<Rollout | null> => (await send<{ rollout?: Rollout }>({ verb: "GET", path: "/console/api/rollout", body: null }, signal)).rollout ?? null,
  refetchInterval: 2_000,
});
