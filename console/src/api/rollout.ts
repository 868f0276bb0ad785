// The newest rollout, as its controller writes it into the metadata.

import { callQuery } from "./queries";

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

export const rolloutQuery = callQuery<Rollout>("Admin.GetRollout", {}, 2_000);
