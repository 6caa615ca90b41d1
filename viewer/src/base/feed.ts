/** News of the store, once per browser.
 *
 * A browser has six connections per host, and an EventSource holds one for ever. So the tabs share
 * one: the tab that holds the lock listens and tells the others. When it closes, another gets the
 * lock and goes on from the last number.
 */

import { signal } from "@preact/signals";
import type { NewsRow, NewsShape, ResetShape } from "../shapes";

/** One event of the store, in short. */
export interface News {
  readonly number: number;
  readonly log: string;
  readonly seq: number;
  readonly kind: string;
  /** Of an event in an inbox: the session that it is for. */
  readonly session: string | null;
}

export type FeedState = "begins" | "live" | "away" | "none";

interface Told {
  readonly type: string;
  readonly id: string;
  readonly data: string;
}

type Listener = (data: unknown) => void;

const EVENTS = ["news", "reset", "delta", "run", "waiting"] as const;
export type FeedEvent = (typeof EVENTS)[number];

export const feedState = signal<FeedState>("none");
/** The time of the last sign of life of the server, in milliseconds. */
export const feedHeard = signal(0);

const listeners = new Map<string, Set<Listener>>();
let lastNumber = 0;

export function onFeed(event: FeedEvent, listener: Listener): () => void {
  const known = listeners.get(event) ?? new Set();
  listeners.set(event, known.add(listener));
  return () => known.delete(listener);
}

/** Hand news on that are newer than all before: after a change of the listening tab some come twice. */
export function freshNews(batch: readonly News[], after: number): readonly News[] {
  return batch.filter((each) => each.number > after);
}

export function readNews([number, log, seq, kind, session]: NewsRow): News {
  return { number, log, seq, kind, session };
}

function receive(told: Told): void {
  if (told.type === "state") {
    feedState.value = told.data as FeedState;
    if (told.data === "live") feedHeard.value = Date.now();
    return;
  }
  feedHeard.value = Date.now();
  let data: unknown;
  try {
    data = JSON.parse(told.data);
  } catch {
    return;
  }
  if (told.type === "reset") {
    // The store was set back, as by a restore from a backup: nothing that is known here holds.
    lastNumber = (data as ResetShape).number;
    location.reload();
    return;
  }
  if (told.type === "news") {
    const batch = (data as NewsShape).rows.map(readNews);
    const fresh = freshNews(batch, lastNumber);
    if (fresh.length === 0) return;
    lastNumber = Math.max(lastNumber, ...fresh.map((each) => each.number));
    data = fresh;
  }
  for (const listener of listeners.get(told.type) ?? []) listener(data);
}

/** Begin to listen, from a commit number on. */
export function startFeed(number: number): void {
  lastNumber = number;
  feedState.value = "begins";
  const channel = new BroadcastChannel("plait-feed");
  channel.onmessage = (event) => receive(event.data as Told);
  const tell = (told: Told) => {
    receive(told);
    channel.postMessage(told);
  };
  void navigator.locks.request("plait-feed", () => listenForEver(tell));
  // A tab that comes later does not know how the feed stands until something is told.
  if (feedState.value === "begins") feedState.value = "live";
}

function listenForEver(tell: (told: Told) => void): Promise<never> {
  let wait_ms = 250;
  const open = () => {
    const stream = new EventSource(`/api/feed?after=${lastNumber}`);
    stream.onopen = () => {
      wait_ms = 250;
      tell({ type: "state", id: "", data: "live" });
    };
    for (const type of EVENTS)
      stream.addEventListener(type, (event) => {
        const message = event as MessageEvent<string>;
        tell({ type, id: message.lastEventId, data: message.data });
      });
    stream.onerror = () => {
      tell({ type: "state", id: "", data: "away" });
      // Always begin again ourselves: the address then has the last number that was handed on.
      stream.close();
      setTimeout(open, wait_ms);
      wait_ms = Math.min(wait_ms * 2, 5000);
    };
  };
  open();
  return new Promise<never>(() => undefined);
}
