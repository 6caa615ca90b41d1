import { describe, expect, it } from "vitest";
import { grownFamily, isPlainKind } from "../src/base/growth";
import { Rows } from "../src/base/rows";
import { branch, smallFamily } from "./family";

describe("a family that grows", () => {
  const end = (log: string, tip: number, stepCount: number) => new Map([[log, { tip, stepCount }]]);

  it("has the new steps in the last stretch of the log", () => {
    const grown = grownFamily(smallFamily(), end("root", 104, 9))!;
    expect(grown.branches[0]).toMatchObject({ tip: 104, step_count: 9 });
    expect(grown.stretches[3]).toMatchObject({ first_step: 3, step_count: 6, last: 104 });
    expect(grown.stretches.slice(0, 3)).toEqual(smallFamily().stretches.slice(0, 3));
    expect(new Rows(grown).count).toBe(13);
    expect(new Rows(grown).stepAt(12)).toMatchObject({ log: "root", index: 8 });
  });

  it("is asked for if a stretch may begin at the end", () => {
    const family = smallFamily();
    const forked = { ...family, branches: [...family.branches, branch("new", 3, { parent: { log: "root", seq: 100 }, place: 100 })] };
    expect(grownFamily(forked, end("root", 104, 9))).toBeNull();
    const merged = { ...family, branches: family.branches.map((each) => (each.log === "side" ? { ...each, merged_into: [{ log: "root", seq: 7 }] } : each)) };
    expect(grownFamily(merged, end("side", 104, 9))).toBeNull();
    expect(grownFamily(merged, end("nobody", 104, 9))).toBeNull();
  });

  it("goes on by plain events alone", () => {
    expect(isPlainKind("MessageSaid")).toBe(true);
    for (const kind of ["ForkedFrom", "Merged", "Rewound", "RunFinished", "ApprovalRequested", "unknown"]) expect(isPlainKind(kind)).toBe(false);
  });
});
