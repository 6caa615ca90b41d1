/** A family that has grown at the ends of its logs: what follows from their outlines is not asked for. */

import type { FamilyShape } from "../shapes";

/** Events that only go on: they cut no stretch, and say nothing of how a session stands. */
const PLAIN_KINDS: ReadonlySet<string> = new Set([
  "MessageSaid", "ModelAsked", "ModelReplied", "ModelFailed", "ToolRequested", "ToolReturned", "ToolFailed",
  "FactRecorded", "FactRetracted", "PendingAdded", "PendingSettled", "RouteSelected", "ValidationRecorded",
  "ContextCompacted", "PlacementChanged", "CallStarted", "CallFinished", "HandedOff", "Delivered", "PatchMarked",
  "MemoryRecalled", "MemoryUsed",
]);

/** Tell whether the stretches and lanes of a family stay as they are with an event of this kind. */
export function isPlainKind(kind: string): boolean {
  return PLAIN_KINDS.has(kind);
}

/** The end of a log: its last event, and how many steps it has. */
export interface LogEnd {
  readonly tip: number;
  readonly stepCount: number;
}

/** Return the family with its logs grown to these ends. null: a stretch may begin there, so the
 * family has to be asked for. That is so if a branch was forked at the end, or it was merged.
 */
export function grownFamily(family: FamilyShape, ends: ReadonlyMap<string, LogEnd>): FamilyShape | null {
  const branches = [...family.branches];
  const stretches = [...family.stretches];
  for (const [log, end] of ends) {
    const index = branches.findIndex((each) => each.log === log);
    const branch = branches[index];
    if (!branch || branch.merged_into.length > 0) return null;
    if (branches.some((each) => each.parent?.log === log && each.place >= branch.tip)) return null;
    let last = -1;
    stretches.forEach((each, at) => {
      if (each.branch === index && (last < 0 || each.first > stretches[last]!.first)) last = at;
    });
    const stretch = stretches[last];
    if (!stretch) return null;
    const tip = Math.max(branch.tip, end.tip);
    branches[index] = { ...branch, tip, step_count: end.stepCount };
    stretches[last] = { ...stretch, last: tip, step_count: end.stepCount - stretch.first_step };
  }
  return { ...family, branches, stretches };
}
