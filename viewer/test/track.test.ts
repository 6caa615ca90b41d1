import { describe, expect, it } from "vitest";
import { stateAt, trackSeq } from "../src/base/track";
import type { TrackShape, TrackState } from "../src/shapes";

const start = {
  seq: 1, tree: null, facts: {}, pending: { a: "write it" }, verdicts: {}, placement_text: "", status: "open",
  spent: { input_tokens: 0 }, budget: null, budget_left: null, last_message_seq: 1,
} as unknown as TrackState;

const fact = (value: number, seq: number) => ({ key: "x", kind: "fact" as const, value, at: { log: "l", seq } });

const track = {
  log: "l", start, last: 10,
  changes: [
    { seq: 3, tree: "t1", facts: { x: fact(1, 3) } },
    { seq: 5, status: "running", pending: { a: null, b: "look" } },
    { seq: 7, facts: { x: fact(2, 7) }, verdicts: { tests: false } },
    { seq: 9, facts: { x: null }, tree: null },
  ],
} as unknown as TrackShape;

describe("the state from a track", () => {
  it("follows its changes", () => {
    expect(stateAt(track, 2)).toMatchObject({ seq: 2, tree: null, status: "open", facts: {} });
    expect(stateAt(track, 3)).toMatchObject({ tree: "t1", facts: { x: { value: 1 } } });
    expect(stateAt(track, 6)).toMatchObject({ status: "running", pending: { b: "look" } });
    expect(stateAt(track, 8)).toMatchObject({ facts: { x: { value: 2 } }, verdicts: { tests: false } });
    const end = stateAt(track, 10);
    expect(end.facts).toEqual({});
    expect(end.tree).toBeNull();
  });

  it("is made anew each time: going back is the same as going there", () => {
    stateAt(track, 10);
    expect(stateAt(track, 3).facts["x"]!.value).toBe(1);
    expect(start.pending).toEqual({ a: "write it" });
  });

  it("is asked for by pieces that begin where the log was forked", () => {
    expect(trackSeq(1, 0)).toBe(1);
    expect(trackSeq(500, 0)).toBe(1);
    expect(trackSeq(501, 0)).toBe(501);
    expect(trackSeq(14, 13)).toBe(14);
    expect(trackSeq(513, 13)).toBe(14);
    expect(trackSeq(514, 13)).toBe(514);
  });
});
