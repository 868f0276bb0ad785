// What this server knows of a federation: calls of the page "Federation".

import { queryOptions } from "@tanstack/react-query";

import { send } from "./client";
import type { Int64 } from "./types";

export interface ArrivingFlow {
  name: string;
  sourceTopic?: string;
  rows?: Int64;
  bytes?: Int64;
  epochs?: Int64;
  duplicatesDropped?: Int64;
  gapsRefused?: Int64;
  committedAt?: string;
  gaps: string[];
  skipped: number;
  sources: number;
}

export interface LeavingFlow {
  name: string;
  topic: string;
  lagMessages?: Int64;
  lagBytes?: Int64;
  used?: string;
  lost: number;
}

export interface HomeSite {
  subscription: string;
  /** This one, and the one that delivers it since this epoch. */
  site: string;
  home: string;
  epoch: number;
}

export interface Flows {
  homes: HomeSite[];
  arriving: ArrivingFlow[];
  leaving: LeavingFlow[];
  unknown: string[];
  /** When it was asked, in milliseconds. */
  at: number;
  /** What was known a while before: rates are made of two looks. */
  before: Flows | null;
}

const LOOK_MS = 2_000;
/** Rates are those of at least so long. */
const OVER_MS = 8_000;

export const flowsQuery = () => {
  const kept: Flows[] = [];
  return queryOptions({
    queryKey: ["flows"],
    queryFn: async ({ signal }): Promise<Flows> => {
      const found = await send<Omit<Flows, "at" | "before">>({ verb: "GET", path: "/console/api/flows", body: null }, signal);
      const now: Flows = { ...found, at: Date.now(), before: null };
      while (kept.length > 1 && (kept[1] as Flows).at <= now.at - OVER_MS) kept.shift();
      kept.push(now);
      const [before] = kept;
      return { ...now, before: before === undefined || before.at === now.at ? null : before };
    },
    refetchInterval: LOOK_MS,
    staleTime: 0,
    gcTime: 0,
  });
};
