import { describe, expect, it } from "vitest";
import { LogOutline, markBit, marksIn, rewoundRows, rowOutline, Rows } from "../src/base/rows";
import { stretchesBefore } from "../src/workbench/lineage";
import { outlineOf, smallFamily } from "./family";

describe("rows of a family", () => {
  const rows = new Rows(smallFamily());

  it("are the steps of its stretches, one after another", () => {
    expect(rows.count).toBe(9);
    expect(rows.stepAt(2)).toMatchObject({ log: "root", index: 2 });
    expect(rows.stepAt(3)).toMatchObject({ log: "side", index: 0 });
    expect(rows.stepAt(7)).toMatchObject({ log: "root", index: 3 });
    expect(rows.stepAt(9)).toBeNull();
    for (let row = 0; row < rows.count; row += 1) {
      const step = rows.stepAt(row)!;
      expect(rows.rowOfStep(step.log, step.index)).toBe(row);
    }
    expect(rows.rowOfStep("nobody", 0)).toBe(-1);
  });

  it("belong to the log that wrote the event", () => {
    expect(rows.ownPlace({ log: "side", seq: 4 })).toEqual({ log: "root", seq: 4 });
    expect(rows.ownPlace({ log: "side", seq: 7 })).toEqual({ log: "side", seq: 7 });
    expect(rows.ownPlace({ log: "empty", seq: 8 })).toEqual({ log: "side", seq: 8 });
    expect(rows.ownPlace({ log: "empty", seq: 2 })).toEqual({ log: "root", seq: 2 });
  });

  it("know what led to a place: a merge brings a branch into the past, a fork does not", () => {
    expect([...stretchesBefore(rows, 3)]).toEqual([1, 1, 0, 1]);
    expect([...stretchesBefore(rows, 1)]).toEqual([1, 1, 0, 0]);
  });

  it("have the outlines of their logs", () => {
    const outlines = new Map([["root", new LogOutline()], ["side", new LogOutline()]]);
    outlines.get("root")!.take(outlineOf("root", 5));
    outlines.get("side")!.take(outlineOf("side", 4, 7, { 2: ["files", "approval"] }));
    const all = rowOutline(rows, outlines);
    expect([...all.seqs]).toEqual([2, 4, 6, 8, 10, 12, 14, 8, 10]);
    expect(marksIn(all.marks[5]!)).toEqual(["files", "approval"]);
    expect(all.marks[5]! & markBit("files")).toBeTruthy();
    expect([...all.branches]).toEqual([0, 0, 0, 1, 1, 1, 1, 0, 0]);
  });
});

describe("the outline of a log", () => {
  it("finds the step of an event", () => {
    const outline = new LogOutline();
    outline.take(outlineOf("root", 5));
    expect(outline.indexAt(1)).toBe(0);
    expect(outline.indexAt(4)).toBe(1);
    expect(outline.indexAt(5)).toBe(2);
    expect(outline.indexAt(99)).toBe(4);
  });

  it("finds the step that is under way when others began and ended meanwhile", () => {
    const outline = new LogOutline();
    outline.take({ ...outlineOf("root", 3), firsts: [1, 4, 6], seqs: [9, 5, 6] });
    expect(outline.indexAt(9)).toBe(0);
    expect(outline.indexAt(8)).toBe(0);
    expect(outline.indexAt(4)).toBe(1);
    expect(outline.indexAt(6)).toBe(2);
  });

  it("grows, and takes changed steps again", () => {
    const outline = new LogOutline();
    outline.take({ ...outlineOf("root", 3), states: ["done", "open", "done"] });
    expect(outline.firstOpen()).toBe(1);
    const piece = outlineOf("root", 200);
    outline.take({ ...piece, from_index: 1, total: 200, ...Object.fromEntries((["firsts", "seqs", "times_ms", "types", "states"] as const).map((key) => [key, piece[key].slice(1)])), marks: { 1: ["failed"] } });
    expect(outline.total).toBe(200);
    expect(outline.firstOpen()).toBe(200);
    expect(marksIn(outline.marks[1]!)).toEqual(["failed"]);
    expect(outline.seqs[199]).toBe(400);
  });
});

describe("rows that a rewind went back behind", () => {
  it("are spans of the rows of their log", () => {
    const rows = new Rows(smallFamily());
    const outline = new LogOutline();
    outline.take({ ...outlineOf("root", 5), rewound: [[3, 8]] });
    // The steps 1 to 3 of the trunk: two before the branch, one after its four rows.
    expect(rewoundRows(rows, new Map([["root", outline]]))).toEqual([[1, 3], [7, 8]]);
    expect(rewoundRows(rows, new Map())).toEqual([]);
  });
});
