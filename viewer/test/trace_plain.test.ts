import { describe, expect, it } from "vitest";
import type { TraceStep } from "../src/shapes";
import { plainTrace, type StepKey } from "../src/workbench/trace_plain";

function step(depth: number, seq: number, how: string): TraceStep {
  return { depth, how, id: String(seq), session: "s", seq, kind: "", branch: "", actor: "", time: 0, says: "", relation: "decision", reason: "", placement: "", files: [], at: { log: "s", seq } };
}

// Events 20 to 26 are one step, 18 to 19 another.
const keyOf = ({ seq }: TraceStep): StepKey => (seq === 23 ? "inner" : seq >= 20 ? 2 : seq >= 18 ? 1 : seq === 5 ? null : 0);

describe("a trace in steps", () => {
  it("has one line for the events of a step, and what hangs on them hangs on it", () => {
    const lines = plainTrace(
      [step(0, 26, "is"), step(1, 25, "asked by"), step(2, 24, "because of"), step(3, 19, "having seen"), step(4, 18, "asked by"), step(3, 2, "told by"), step(1, 3, "after")],
      keyOf,
    );
    expect(lines.map((line) => [line.depth, line.step.seq, line.step.how])).toEqual([
      [0, 26, "is"],
      [1, 19, "having seen"],
      [1, 2, "told by"],
    ]);
    expect(lines[0]!.others.map((each) => each.seq)).toEqual([25, 24]);
    expect(lines[1]!.others.map((each) => each.seq)).toEqual([18]);
    expect(lines[2]!.others.map((each) => each.seq)).toEqual([3]);
  });

  it("keeps events of other families apart", () => {
    const lines = plainTrace([step(0, 26, "is"), step(1, 5, "came by"), step(1, 5, "came by")], keyOf);
    expect(lines).toHaveLength(3);
  });

  it("gives the question to a model to the step that came of it", () => {
    const lines = plainTrace([step(0, 26, "is"), step(1, 23, "because of"), step(2, 19, "having seen")], keyOf);
    expect(lines.map((line) => [line.depth, line.step.seq])).toEqual([[0, 26], [1, 19]]);
    expect(lines[0]!.others[0]!.seq).toBe(23);
    expect(plainTrace([step(0, 23, "is")], keyOf)).toHaveLength(1);
  });

  it("of nothing is nothing", () => {
    expect(plainTrace([], keyOf)).toEqual([]);
  });
});
