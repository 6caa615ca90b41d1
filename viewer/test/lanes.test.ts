import { describe, expect, it } from "vitest";
import { laneColor, laneLinks, laneSize, lanesWidth, linesInSight, linkPath } from "../src/base/lanes";
import { Rows } from "../src/base/rows";
import { smallFamily } from "./family";

const size = laneSize(2, 26);

function numbersIn(d: string): number[] {
  return [...d.matchAll(/-?\d+(\.\d+)?/g)].map(([text]) => Number(text));
}

describe("lanes", () => {
  const links = laneLinks(new Rows(smallFamily()));

  it("lead from each stretch to the ones it comes from", () => {
    expect(links.map(({ from, to, kind }) => [from, to, kind])).toEqual([
      [0, 2, "body"], // the trunk
      [3, 6, "body"], // the branch
      [2, 3, "fork"],
      [7, 8, "body"],
      [2, 7, "body"], // the trunk goes on beside the branch
      [6, 7, "merge"],
    ]);
  });

  it("have the colour of the branch, also where it is merged", () => {
    expect(links.filter((link) => link.kind !== "body").map((link) => link.branch)).toEqual([1, 1]);
  });

  it("are drawn for the rows in sight alone", () => {
    expect(linesInSight(links, 0, 2, size)).toHaveLength(1);
    expect(linesInSight(links, 4, 6, size).map((line) => line.branch).sort()).toEqual([0, 1]);
    expect(linesInSight(links, 100, 200, size)).toHaveLength(0);
  });

  it("do not leave the sight by more than a row, however long a stretch is", () => {
    const long = { from: 5, fromLane: 0, to: 90_000, toLane: 2, kind: "fork", branch: 3 } as const;
    for (const [first, end] of [[0, 40], [4, 44], [40_000, 40_040], [89_990, 90_010]] as const) {
      const ys = numbersIn(linkPath(long, first, end, size));
      expect(Math.max(...ys)).toBeLessThanOrEqual((end - first + 1.5) * 26);
      expect(Math.min(...ys)).toBeGreaterThanOrEqual(-1.5 * 26);
    }
    const merge = { ...long, kind: "merge" } as const;
    expect(linkPath(merge, 40_000, 40_040, size)).not.toContain("C");
    expect(linkPath(merge, 89_990, 90_010, size)).toContain("C");
  });

  it("stay narrow with many branches", () => {
    expect(lanesWidth(61, laneSize(61, 26))).toBeLessThan(240);
    expect(laneColor(0).token).toBe("--lane-0");
    expect(new Set(Array.from({ length: 60 }, (_, i) => laneColor(i + 1).token)).has("--lane-0")).toBe(false);
    expect(laneColor(8)).toEqual({ token: "--lane-1", isDashed: true });
  });
});
