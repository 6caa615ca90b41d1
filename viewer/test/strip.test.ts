import { describe, expect, it } from "vitest";
import { markBit, Rows, type RowOutline } from "../src/base/rows";
import { branchLines, denseMarks, markColumns, rowAtX, stripLayout, xOfRow } from "../src/workbench/strip_layout";
import { branch, NOTHING_SPENT, smallFamily, stretch } from "./family";

function outlineWith(count: number, marked: ReadonlyMap<number, number>): RowOutline {
  const marks = new Uint16Array(count);
  for (const [row, bits] of marked) marks[row] = bits;
  return { count, marks, seqs: new Int32Array(count), branches: new Uint16Array(count), times: Float64Array.from({ length: count }, (_, i) => i * 50) };
}

describe("the strip", () => {
  const rows = new Rows(smallFamily());

  it("goes from a step to its place and back", () => {
    const outline = outlineWith(rows.count, new Map());
    for (const mode of ["step", "time"] as const) {
      const layout = stripLayout(rows, outline, 900, mode);
      for (let row = 0; row < rows.count; row += 1) expect(rowAtX(layout, xOfRow(layout, row))).toBe(row);
      expect(rowAtX(layout, -50)).toBe(0);
      expect(rowAtX(layout, 5000)).toBe(rows.count - 1);
    }
  });

  it("loses no mark when it gathers 100,000 steps", () => {
    const count = 100_000;
    const large = new Rows({ root: "r", title: "", lane_count: 1, number: 1, ...NOTHING_SPENT, branches: [branch("r", 0)], stretches: [stretch(0, 0, 0, count, [])] });
    const marked = new Map([[3, markBit("kill")], [4, markBit("passed")], [50_000, markBit("failed")], [99_999, markBit("merge") | markBit("files")]]);
    const layout = stripLayout(large, outlineWith(count, marked), 1000, "step");
    const columns = markColumns(layout, outlineWith(count, marked).marks);
    const all = [...marked.values()].reduce((bits, each) => bits | each, 0);
    expect(columns.reduce((bits, column) => bits | column.bits, 0)).toBe(all);
    expect(columns.reduce((sum, column) => sum + column.count, 0)).toBe(marked.size);
    expect(columns.length).toBeLessThanOrEqual(200);
    for (const column of columns) expect(column.x).toBeLessThanOrEqual(1000);
  });

  it("tells marks that stand everywhere from those that stand out", () => {
    const column = (x: number, bits: number) => ({ x, bits, first: 0, count: 1 });
    const columns = Array.from({ length: 150 }, (_, i) => column(i * 6, markBit("failed") | (i === 7 ? markBit("kill") : 0)));
    expect(denseMarks(columns, 900)).toBe(markBit("failed"));
    expect(denseMarks(columns.slice(0, 9), 900)).toBe(0);
  });

  it("has a row for each branch, and shares rows if there are many", () => {
    expect(branchLines(rows).lineCount).toBe(3);
    const many = Array.from({ length: 61 }, (_, index) => branch(`b${index}`, index));
    const shared = new Rows({ root: "b0", title: "", lane_count: 7, number: 1, ...NOTHING_SPENT, branches: many, stretches: many.map((_, index) => stretch(index, index % 7, 0, 1, [])) });
    expect(branchLines(shared).lineCount).toBe(7);
  });
});
