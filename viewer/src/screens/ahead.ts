/** What lies behind a place: the calls that a what-if makes again, and a rewind does not undo. */

import type { EventShape, FamilyShape, Json, RunRow } from "../shapes";
import type { Source } from "../source";

/** The effect classes that reach beyond the workspace: they ask first in a what-if. */
const OUTWARD = new Set(["idempotent", "probeable", "compensatable", "at_most_once"]);
const PAGE = 500;
const EVENTS_MAX = 20_000;

export interface CallAhead {
  readonly log: string;
  readonly seq: number;
  readonly tool: string;
  readonly effect: string;
  readonly isOutward: boolean;
  readonly arguments: Json;
}

/** Kinds of events with which a call is over, or may have happened. */
const OUTCOMES = new Set(["ToolReturned", "ToolFailed", "ToolUnknown", "ToolResolved"]);
const LOOK_BACK = 200;

export interface Ahead {
  /** Models by name, and how often each was asked behind the place. */
  readonly models: ReadonlyMap<string, number>;
  readonly calls: readonly CallAhead[];
  readonly isCut: boolean;
}

function field(event: EventShape, name: string): string {
  const body = event.body;
  if (body === null || typeof body !== "object" || Array.isArray(body)) return "";
  const value = body[name];
  return typeof value === "string" ? value : "";
}

async function readLog(source: Source, log: string, first: number, room: number): Promise<EventShape[]> {
  const found: EventShape[] = [];
  for (let from = first; found.length < room; from += PAGE) {
    const page = await source.events(log, from, PAGE).get();
    found.push(...page.events);
    if (page.events.length < PAGE || from + PAGE > page.tip) break;
  }
  return found;
}

/** Read the events behind a place, in its log and in the branches that its runs made there. */
export async function lookAhead(source: Source, family: FamilyShape | null, log: string, seq: number): Promise<Ahead> {
  const logs: [string, number][] = [[log, seq + 1]];
  for (const branch of family?.branches ?? [])
    if (branch.parent?.log === log && branch.place >= seq) logs.push([branch.log, branch.place + 1]);
  const models = new Map<string, number>();
  const calls: CallAhead[] = [];
  let room = EVENTS_MAX;
  for (const [each, first] of logs) {
    const events = await readLog(source, each, Math.max(1, first - LOOK_BACK), room).catch(() => []);
    room -= events.length;
    // A call that was begun before the place, and came to its end after it, lies behind it as well.
    const ended = new Set(events.filter((event) => event.seq >= first && OUTCOMES.has(event.kind)).map((event) => event.call));
    for (const event of events) {
      if (event.seq < first && !(event.kind === "ToolRequested" && ended.has(event.call))) continue;
      if (event.kind === "ModelAsked") {
        const name = field(event, "model") || "a model";
        models.set(name, (models.get(name) ?? 0) + 1);
      } else if (event.kind === "ToolRequested") {
        const effect = field(event, "effect");
        const body = event.body as { readonly [key: string]: Json };
        calls.push({ log: event.session, seq: event.seq, tool: field(event, "tool"), effect, isOutward: OUTWARD.has(effect), arguments: body["arguments"] ?? null });
      }
    }
    if (room <= 0) break;
  }
  return { models, calls, isCut: room <= 0 };
}

/** Count equal words: `shell 3 times, wire`. */
export function countedWords(words: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  return [...counts].map(([word, count]) => (count > 1 ? `${word} ×${count}` : word)).join(", ");
}

/** Return the run that began after an event which stands in no run itself; null: there is none. */
export function runAfter(runs: readonly RunRow[], seq: number): RunRow | null {
  if (runs.some((run) => run.first <= seq && (run.last === null || seq <= run.last))) return null;
  return runs.find((run) => run.first > seq) ?? null;
}
