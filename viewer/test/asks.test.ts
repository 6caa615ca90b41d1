import { describe, expect, it } from "vitest";
import { answeredWords, isForActor, verdictReason, waitsFor } from "../src/base/asks";
import { runAfter } from "../src/screens/ahead";
import type { EventShape, RunRow } from "../src/shapes";

const event = (kind: string, actor: string) => ({ kind, actor }) as EventShape;

describe("an ask in words", () => {
  it("waits for you, for the judge, or for a signal", () => {
    const gate = { kind: "verdict", by: "human:ann", signal: "review" } as const;
    expect([waitsFor(gate, "human:ann"), waitsFor(gate, "human:root")]).toEqual(["you", "ann"]);
    expect([isForActor(gate, "human:ann"), isForActor(gate, "human:root")]).toEqual([true, false]);
    expect(waitsFor({ ...gate, by: "" }, "human:root")).toBe("you");
    expect(waitsFor({ kind: "timer", by: "", signal: "built" }, "human:root")).toBe("the signal built");
    expect(waitsFor({ kind: "timer", by: "", signal: "" }, "human:root")).toBe("its time");
    expect(waitsFor({ kind: "approval", by: "", signal: "" }, "human:root")).toBe("you");
  });

  it("tells an answer that no run has taken yet", () => {
    expect(answeredWords({ answered: null })).toBe("");
    expect(answeredWords({ answered: event("ApprovalGranted", "human:ana") })).toBe("granted by ana, not resumed yet");
    expect(answeredWords({ answered: event("ApprovalDenied", "human:ana") })).toBe("denied by ana, not resumed yet");
  });
});

describe("a message outside of runs", () => {
  const run = (first: number, last: number | null) => ({ id: "", workflow: "w", status: "", why: "", first, last }) as RunRow;

  it("is said anew before the run that came next", () => {
    const runs = [run(3, 9), run(12, null)];
    expect([1, 2, 10, 11].map((seq) => runAfter(runs, seq)?.first)).toEqual([3, 3, 12, 12]);
    expect([3, 9, 12, 40].map((seq) => runAfter(runs, seq))).toEqual([null, null, null, null]);
    expect(runAfter([], 2)).toBeNull();
  });
});

describe("a verdict", () => {
  it("has its reason in words", () => {
    expect(verdictReason({ fields: { detail: "too long" } })).toBe("too long");
    expect(verdictReason({ fields: { detail: { reason: "no tests", of: "x" } } })).toBe("no tests");
    expect([verdictReason({ fields: { detail: { count: 3 } } }), verdictReason({ fields: {} })]).toEqual(["", ""]);
  });
});
