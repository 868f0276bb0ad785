// The one live stream of the page: what is watched by whoever is mounted, and the last five minutes of it.

import { useEffect, useMemo, useSyncExternalStore } from "react";

import { ApiError, authorization, onToken } from "./client";

const KEPT = 300;
/** Counters are a second old at most: over a shorter time a rate would be a guess. */
const SPAN_S = 1.5;
const REOPEN_MS = 120;
const RETRY_MS = 2000;
/** A connection is given up that is silent for longer than the server ever is. */
const SILENT_MS = 10_000;

export interface Sample<T> {
  at: number;
  value: T;
}

export interface Watched<T> {
  value: T | null;
  samples: Sample<T>[];
  error: ApiError | null;
}

interface Entry {
  users: number;
  seen: Watched<unknown>;
}

export type StreamState = "idle" | "opening" | "live" | "lost";

interface LiveEvent {
  changed: Record<string, unknown>;
  failed: Record<string, { code: string; message: string }>;
}

const NOTHING: Watched<unknown> = { value: null, samples: [], error: null };

class LiveStream {
  private readonly entries = new Map<string, Entry>();
  private readonly listeners = new Set<() => void>();
  private running: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private silence: ReturnType<typeof setTimeout> | undefined;
  state: StreamState = "idle";

  constructor() {
    onToken(() => this.reopen(0));
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  read(name: string): Watched<unknown> {
    return this.entries.get(name)?.seen ?? NOTHING;
  }

  use(names: readonly string[]): () => void {
    let grown = false;
    for (const name of names) {
      const entry = this.entries.get(name);
      if (entry !== undefined) entry.users += 1;
      else {
        this.entries.set(name, { users: 1, seen: NOTHING });
        grown = true;
      }
    }
    if (grown) this.reopen(REOPEN_MS);
    return () => {
      for (const name of names) {
        const entry = this.entries.get(name);
        if (entry === undefined) continue;
        entry.users -= 1;
        // Kept for a moment: the next page often watches the same.
        if (entry.users === 0) setTimeout(() => this.forget(name), REOPEN_MS);
      }
    };
  }

  private forget(name: string): void {
    const entry = this.entries.get(name);
    if (entry === undefined || entry.users > 0) return;
    this.entries.delete(name);
    this.reopen(REOPEN_MS);
  }

  private reopen(afterMs: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.run(), afterMs);
  }

  private tell(state: StreamState): void {
    this.state = state;
    for (const listener of this.listeners) listener();
  }

  private async run(): Promise<void> {
    this.running?.abort();
    this.running = null;
    const names = [...this.entries.keys()].sort();
    if (names.length === 0) {
      this.tell("idle");
      return;
    }
    const mine = new AbortController();
    this.running = mine;
    this.tell(this.state === "live" ? "live" : "opening");
    try {
      const query = new URLSearchParams(names.map((name) => ["watch", name]));
      const answer = await fetch(`/console/api/live?${query.toString()}`, {
        headers: authorization(),
        signal: mine.signal,
        cache: "no-store",
      });
      if (!answer.ok || answer.body === null) throw new Error(`status ${answer.status}`);
      let left = "";
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        clearTimeout(this.silence);
        this.silence = setTimeout(() => mine.abort(), SILENT_MS);
        const { done, value } = await reader.read();
        if (done) break;
        const events = (left + value).split("\n\n");
        left = events.pop() ?? "";
        for (const event of events) this.take(JSON.parse(event.replace(/^data: /, "")) as LiveEvent);
      }
    } catch {
      // The reason is of no use to anybody but the network panel; what matters is said: it is lost, and tried again.
    }
    clearTimeout(this.silence);
    if (this.running !== mine) return;
    this.tell("lost");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.run(), RETRY_MS);
  }

  private take(event: LiveEvent): void {
    const at = Date.now() / 1000;
    for (const [name, entry] of this.entries) {
      const failed = event.failed[name];
      if (failed !== undefined) {
        entry.seen = { ...entry.seen, error: new ApiError(0, failed.code, failed.message) };
        continue;
      }
      const changed = event.changed[name];
      const value = changed ?? entry.seen.value;
      if (value === null || (changed === undefined && entry.seen.error !== null)) continue;
      entry.seen = { value, samples: [...entry.seen.samples.slice(1 - KEPT), { at, value }], error: null };
    }
    this.tell("live");
  }
}

export const live = new LiveStream();

export function useStreamState(): StreamState {
  return useSyncExternalStore(live.subscribe, () => live.state);
}

/** What is watched under a name, such as `server` or `topic:projects/p/topics/t`; null: nothing. */
export function useWatch<T>(name: string | null): Watched<T> {
  useEffect(() => (name === null ? undefined : live.use([name])), [name]);
  const seen = useSyncExternalStore(live.subscribe, () => (name === null ? NOTHING : live.read(name)));
  return seen as Watched<T>;
}

/** How fast a number grew, per second, as points of a chart. `over`: seconds that are averaged. */
export function useRates<T>(watched: Watched<T>, counter: (value: T) => number | undefined, over = 3): [number, number][] {
  return useMemo(() => ratesOf(watched.samples, counter, over), [watched.samples, over]); // `counter` is written in place
}

export function ratesOf<T>(samples: Sample<T>[], counter: (value: T) => number | undefined, over = 3): [number, number][] {
  const points: [number, number][] = [];
  for (let i = 1; i < samples.length; i += 1) {
    const now = samples[i] as Sample<T>;
    const then = samples[Math.max(0, i - over)] as Sample<T>;
    const [a, b] = [counter(then.value), counter(now.value)];
    if (a === undefined || b === undefined || now.at - then.at < SPAN_S) continue;
    points.push([now.at, Math.max(0, (b - a) / (now.at - then.at))]); // a counter that fell began anew
  }
  return points;
}

export const last = (points: [number, number][]): number | null => points.at(-1)?.[1] ?? null;
