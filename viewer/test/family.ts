/** Families for tests: branches as lists of stretches. */

import type { BranchShape, FamilyShape, OutlineShape, SpentShape, StretchShape } from "../src/shapes";

const NOTHING: SpentShape = {
  input_tokens: 0, output_tokens: 0, cached_tokens: 0, reasoning_tokens: 0, estimated_tokens: 0,
  cost_usd: 0, unpriced: 0, model_calls: 0, tool_calls: 0,
};

export const NOTHING_SPENT = { spent: NOTHING, spent_unmerged: NOTHING };

export function branch(log: string, color: number, extra: Partial<BranchShape> = {}): BranchShape {
  return {
    log, short: log, name: log, status: "finished", standing: "finished", is_due: false, parent: null, place: 0, tip: 100, color,
    step_count: 0, merged_into: [], spent: NOTHING, ...extra,
  };
}

export function stretch(branch: number, lane: number, first_step: number, step_count: number, parents: number[], first = first_step * 2 + 1): StretchShape {
  return { branch, lane, first, last: first + step_count * 2 - 1, first_step, step_count, parents };
}

/** A trunk of 3 + 2 steps with a branch of 4 that is merged, and an empty one. */
export function smallFamily(): FamilyShape {
  return {
    root: "root", title: "", lane_count: 2, number: 1, ...NOTHING_SPENT,
    branches: [
      branch("root", 0),
      branch("side", 1, { parent: { log: "root", seq: 6 }, place: 6 }),
      branch("empty", 2, { parent: { log: "side", seq: 10 }, place: 10 }),
    ],
    stretches: [
      stretch(0, 0, 0, 3, []),
      stretch(1, 1, 0, 4, [0], 7),
      stretch(2, 1, 0, 0, [1], 11),
      stretch(0, 0, 3, 2, [0, 1]),
    ],
  };
}

export function outlineOf(log: string, count: number, first = 1, marks: OutlineShape["marks"] = {}): OutlineShape {
  const all = Array.from({ length: count }, (_, index) => index);
  return {
    log, from_index: 0, total: count, firsts: all.map((i) => first + i * 2), seqs: all.map((i) => first + i * 2 + 1),
    times_ms: all.map((i) => 1000 + i * 10), types: all.map(() => "tool" as const), states: all.map(() => "done" as const), marks, rewound: [], number: 1,
  };
}
