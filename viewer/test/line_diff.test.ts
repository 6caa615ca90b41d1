import { describe, expect, it } from "vitest";
import { allLines, lineDiff } from "../src/file/line_diff";

function sides(lines: ReturnType<typeof allLines>): [string[], string[]] {
  return [
    lines.filter(([mark]) => mark !== "+").map(([, , , text]) => text),
    lines.filter(([mark]) => mark !== "-").map(([, , , text]) => text),
  ];
}

describe("line differences", () => {
  it("has both texts, whatever they are", () => {
    let seed = 7;
    const next = (n: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
    for (let round = 0; round < 400; round += 1) {
      const left = Array.from({ length: next(12) }, () => "abcd"[next(4)]!);
      const right = Array.from({ length: next(12) }, () => "abcd"[next(4)]!);
      const lines = allLines(left, right);
      expect(sides(lines)).toEqual([left, right]);
      for (const [mark, old, now, text] of lines) {
        if (mark !== "+") expect(left[old - 1]).toBe(text);
        if (mark !== "-") expect(right[now - 1]).toBe(text);
      }
    }
  });

  it("finds the one line that changed, with three lines around it", () => {
    const left = Array.from({ length: 40 }, (_, at) => `line ${at}`);
    const right = left.map((line, at) => (at === 20 ? "other" : line));
    const found = lineDiff(left, right);
    expect([found.added, found.removed, found.hunks.length]).toEqual([1, 1, 1]);
    expect(found.hunks[0]!.map(([mark]) => mark).join("")).toBe("   -+   ");
  });

  it("keeps changes that are far apart in hunks of their own", () => {
    const left = Array.from({ length: 60 }, (_, at) => `line ${at}`);
    const right = left.filter((_, at) => at !== 5).map((line) => (line === "line 50" ? "x" : line));
    expect(lineDiff(left, right).hunks.length).toBe(2);
  });
});
