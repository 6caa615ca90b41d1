import { describe, expect, it } from "vitest";
import { answeredWords, isForActor, standingWords, waitsFor } from "../src/base/asks";
import type { EventShape } from "../src/shapes";

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
    const answered = { answered: event("QuestionAnswered", "human:ana") };
    expect(standingWords("waiting", [answered])).toBe("answered, not resumed yet");
    expect(standingWords("waiting", [answered, { answered: null }])).toBe("waiting");
    expect([standingWords("waiting", []), standingWords("paused", [answered])]).toEqual(["waiting", "paused"]);
  });
});
