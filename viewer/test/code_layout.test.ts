import { describe, expect, it } from "vitest";
import type { DiffLine, FileDiff } from "../src/shapes";
import { CodeLayout } from "../src/workbench/code_layout";

function changed(...hunks: DiffLine[][]): FileDiff {
  return { status: "changed", path: "a", old_path: null, added: 0, removed: 0, form: "text", hunks, is_cut: false };
}

function told(layout: CodeLayout): string[] {
  return Array.from({ length: layout.count }, (_, index) => {
    const row = layout.rowAt(index);
    return `${{ same: " ", added: "+", removed: "-" }[row.kind]}${row.number}`;
  });
}

describe("the rows of a file", () => {
  it("are its lines if nothing changed", () => {
    expect(told(new CodeLayout(3, undefined))).toEqual([" 1", " 2", " 3"]);
    expect(new CodeLayout(3, undefined).firstChange).toBe(-1);
  });

  it("have removed lines where they stood", () => {
    const layout = new CodeLayout(4, changed([[" ", 1, 1, "a"], ["-", 2, 0, "b"], ["-", 3, 0, "c"], ["+", 0, 2, "B"], [" ", 4, 3, "d"]]));
    expect(told(layout)).toEqual([" 1", "-2", "-3", "+2", " 3", " 4"]);
    expect(layout.firstChange).toBe(1);
    for (let line = 1; line <= 4; line += 1) expect(layout.rowAt(layout.indexOf(line)).number).toBe(line);
    expect(layout.indexOf(9)).toBe(-1);
  });

  it("have removed lines at the end, and of several hunks", () => {
    const layout = new CodeLayout(6, changed([["-", 1, 0, "x"], [" ", 2, 1, "a"]], [[" ", 7, 6, "f"], ["-", 8, 0, "y"]]));
    expect(told(layout)).toEqual(["-1", " 1", " 2", " 3", " 4", " 5", " 6", "-8"]);
  });

  it("have removed lines alone if the file became empty", () => {
    expect(told(new CodeLayout(0, changed([["-", 1, 0, "x"], ["-", 2, 0, "y"]])))).toEqual(["-1", "-2"]);
  });
});
