// Cells of long lists that are asked for while they are in view, a few at a time.

import { useQuery } from "@tanstack/react-query";

import { call } from "../api/client";
import type { SubscriptionState, TopicState } from "../api/types";
import { compact, duration, num } from "../lib/format";

const AT_ONCE = 3;
let running = 0;
const waiting: (() => void)[] = [];

/** Browsers open six connections to a server; lists take half of them. */
async function inTurn<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
  if (running >= AT_ONCE) await new Promise<void>((go) => waiting.push(go));
  else running += 1;
  try {
    signal.throwIfAborted();
    return await ask();
  } finally {
    const next = waiting.shift();
    if (next === undefined) running -= 1;
    else next();
  }
}

function useListedState(name: string) {
  return useQuery({
    queryKey: ["listed-state", name],
    queryFn: ({ signal }) => inTurn(() => call<SubscriptionState>("Admin.GetSubscriptionState", { subscription: name, rangesMax: 1 }, signal), signal),
    staleTime: 10_000,
    refetchInterval: 15_000,
  }).data;
}

export const stored = (state: TopicState): number => (state.sources ?? []).reduce((all, one) => all + num(one.nextOffset) - num(one.firstOffset), 0);

export function Backlog({ name }: { name: string }) {
  const state = useListedState(name);
  return <>{state === undefined ? "" : compact(num(state.backlogMessages))}</>;
}

export function OldestAge({ name }: { name: string }) {
  const state = useListedState(name);
  return <>{state === undefined ? "" : state.oldestUnackedAge === undefined ? "–" : duration(state.oldestUnackedAge)}</>;
}

export function Subscribers({ name }: { name: string }) {
  const state = useListedState(name);
  return <>{state === undefined ? "" : num(state.subscribers)}</>;
}
