/** What the screens hear from the feed: that something is new, how runs stand, what a model writes. */

import { signal } from "@preact/signals";
import { onFeed } from "../base/feed";
import type { DeltaShape, RunShape, WaitingShape } from "../shapes";

const REDRAW_MS = 400;
const TEXT_MAX = 4000;

/** Counts batches of news: a screen that reads it is drawn again, and asks for what became old. */
export const newsCount = signal(0);
/** How many asks wait for people; null: not told yet. */
export const waitingCount = signal<number | null>(null);
/** The runs of this server that were told of, by id. */
export const toldRuns = signal<ReadonlyMap<string, RunShape>>(new Map());
/** The last words of the runs of this server that are not on record yet, by run. */
export const runWords = signal<ReadonlyMap<string, string>>(new Map());

let timer: ReturnType<typeof setTimeout> | undefined;

function redrawSoon(): void {
  timer ??= setTimeout(() => {
    timer = undefined;
    newsCount.value += 1;
  }, REDRAW_MS);
}

export function noteRun(run: RunShape): void {
  toldRuns.value = new Map(toldRuns.peek()).set(run.id, run);
}

function noteDelta(delta: DeltaShape): void {
  const before = delta.type === "restart" ? "" : (runWords.peek().get(delta.run) ?? "");
  if (!["text", "thought", "output", "tool"].includes(delta.type)) return;
  const added = delta.type === "tool" ? `\n${delta.text} ` : delta.text;
  runWords.value = new Map(runWords.peek()).set(delta.run, (before + added).slice(-TEXT_MAX));
}

/** Begin to listen. Call it once, after the model: it forgets what is old first. */
export function listenForScreens(): void {
  onFeed("news", redrawSoon);
  onFeed("waiting", (data) => {
    waitingCount.value = (data as WaitingShape).count;
    redrawSoon();
  });
  onFeed("run", (data) => {
    noteRun(data as RunShape);
    redrawSoon();
  });
  onFeed("delta", (data) => noteDelta(data as DeltaShape));
}
