/** A trace in steps instead of events: events of one step are one line. */

import type { TraceStep } from "../shapes";

export interface PlainLine {
  readonly depth: number;
  readonly step: TraceStep;
  /** The step of the family that it stands for; null: outside of it. */
  readonly key: number | null;
  /** The events that the line stands for besides. */
  readonly others: TraceStep[];
}

/** The step of an event, by its row; null: it is outside of the family; `inner`: it is part of no step,
 * such as the question to a model, and belongs to what came of it.
 */
export type StepKey = number | null | "inner";

/** Fold a trace. Events with the key of the line above belong to it, and what hangs on them hangs on
 * it.
 */
export function plainTrace(steps: readonly TraceStep[], keyOf: (step: TraceStep) => StepKey): PlainLine[] {
  const lines: PlainLine[] = [];
  const open: { readonly depth: number; readonly line: PlainLine }[] = [];
  const childrenOf = new Map<PlainLine, Map<number, PlainLine>>();
  for (const step of steps) {
    while (open.length && open.at(-1)!.depth >= step.depth) open.pop();
    const parent = open.at(-1)?.line;
    const key = keyOf(step);
    const siblings = parent ? childrenOf.get(parent)! : undefined;
    const known = key === null ? undefined : key === "inner" || parent?.key === key ? parent : siblings?.get(key);
    if (known) {
      known.others.push(step);
      open.push({ depth: step.depth, line: known });
      continue;
    }
    const line: PlainLine = { depth: parent ? parent.depth + 1 : 0, step, key: key === "inner" ? null : key, others: [] };
    lines.push(line);
    childrenOf.set(line, new Map());
    if (line.key !== null) siblings?.set(line.key, line);
    open.push({ depth: step.depth, line });
  }
  return lines;
}
