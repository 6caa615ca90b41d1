/** Why and influence from the links in a file: the walk that the server makes over its store. */

import type { Relation, TraceShape, TraceStep } from "../shapes";

/** A step back: the way, the log by its index, the seq, and 0 if a walk ends there. */
export type Link = readonly [how: string, log: number, seq: number, isFollowed: number];
/** The line of an event: kind, actor, time, words, details, links back. */
export type EventLine = readonly [
  kind: string,
  actor: string,
  time: number,
  says: string,
  details: readonly [reason: string, placement: string, files: readonly string[]],
  links: readonly Link[],
];

/** Where the lines of events are read from. */
export interface Lines {
  line(log: number, seq: number): Promise<EventLine | null>;
  branch(log: number): { readonly id: string; readonly name: string; readonly isHere: boolean };
}

const RELATIONS: Readonly<Record<string, Relation>> = {
  is: "subject",
  "having seen": "context",
  "seen by": "context",
  "ran in": "context",
  after: "order",
  "followed by": "order",
  "came by": "order",
  "carried into": "order",
  "merged into": "order",
};

/** The way back from the other end. */
export const FORWARD: Readonly<Record<string, string>> = {
  "because of": "caused",
  "having seen": "seen by",
  "asked by": "came of it",
  "approved by": "came of it",
  "merged from": "merged into",
  after: "followed by",
};

interface Found {
  readonly how: string;
  readonly log: number;
  readonly seq: number;
  readonly line: EventLine;
  readonly children: Found[];
}

/** Walk from an event, breadth first: each event once, as near to the first as it can be. */
export async function walk(
  lines: Lines,
  log: number,
  seq: number,
  linksOf: (log: number, seq: number, line: EventLine) => Promise<readonly Link[]>,
  about: string,
  limit: number,
): Promise<TraceShape> {
  const first = await lines.line(log, seq);
  if (!first) return { about, complete: true, steps: [] };
  const root: Found = { how: "is", log, seq, line: first, children: [] };
  const seen = new Set([`${log}@${seq}`]);
  const queue = [root];
  let complete = true;
  for (let at = 0; at < queue.length; at += 1) {
    const here = queue[at]!;
    for (const [how, toLog, toSeq, isFollowed] of await linksOf(here.log, here.seq, here.line)) {
      const key = `${toLog}@${toSeq}`;
      if (seen.has(key)) continue;
      if (seen.size >= limit) {
        complete = false;
        break;
      }
      const line = await lines.line(toLog, toSeq);
      if (!line) continue;
      seen.add(key);
      const found: Found = { how, log: toLog, seq: toSeq, line, children: [] };
      here.children.push(found);
      if (isFollowed) queue.push(found);
    }
  }
  return { about, complete, steps: inOrder(lines, root) };
}

function inOrder(lines: Lines, root: Found): TraceStep[] {
  const steps: TraceStep[] = [];
  const stack: [depth: number, found: Found][] = [[0, root]];
  while (stack.length) {
    const [depth, { how, log, seq, line, children }] = stack.pop()!;
    const [kind, actor, time, says, [reason, placement, files]] = line;
    const branch = lines.branch(log);
    steps.push({
      depth,
      how,
      id: `${branch.id}@${seq}`,
      session: branch.id,
      seq,
      kind,
      branch: branch.name,
      actor,
      time,
      says,
      relation: RELATIONS[how] ?? "decision",
      reason,
      placement,
      files: [...files],
      at: branch.isHere ? { log: branch.id, seq } : null,
    });
    for (const child of [...children].reverse())
      stack.push([child.how === "after" && depth ? depth : depth + 1, child]);
  }
  return steps;
}
