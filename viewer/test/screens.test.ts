import { spentText } from "../src/base/format";
import { NOTHING_SPENT } from "./family";
import { describe, expect, it } from "vitest";
import { burnLines } from "../src/screens/burndown";
import { countedWords, lookAhead } from "../src/screens/ahead";
import { nodesOfCosts } from "../src/screens/cost";
import { flameBoxes, flameValues, pathTo } from "../src/screens/flame_layout";
import { freeWords, splitAtWords } from "../src/screens/home";
import { conflictsOf, sideText } from "../src/screens/merge";
import { fit } from "../src/screens/fit";
import { parsePatch } from "../src/screens/patch";
import type { CostsShape, EventShape, FlameNode, SpentShape, TrackShape } from "../src/shapes";
import type { Source } from "../src/source";

function spent(cost: number | null, tokens = 0, unpriced = 0): SpentShape {
  return {
    input_tokens: tokens, output_tokens: 0, cached_tokens: 0, reasoning_tokens: 0, estimated_tokens: 0,
    cost_usd: cost, unpriced, model_calls: 1, tool_calls: 0,
  };
}

function node(name: string, parent: number, cost: number, took_us: number | null = null): FlameNode {
  return { name, kind: "call", log: "a", seq: 1, depth: parent < 0 ? 0 : 1, parent, began: 0, took_us, spent: spent(cost, cost * 100) };
}

describe("a patch", () => {
  it("becomes files with numbered lines", () => {
    const [file, ...more] = parsePatch("--- a/cart.py\n+++ b/cart.py\n@@ -5,2 +5,3 @@\n same\n-old\n+new\n+more\n");
    expect(more).toEqual([]);
    expect(file).toMatchObject({ path: "cart.py", status: "changed", added: 2, removed: 1 });
    expect(file!.hunks).toEqual([[[" ", 5, 5, "same"], ["-", 6, 0, "old"], ["+", 0, 6, "new"], ["+", 0, 7, "more"]]]);
  });

  it("tells new files, removed ones, and lines that look like heads", () => {
    const files = parsePatch("--- /dev/null\n+++ b/a\n@@ -0,0 +1,1 @@\n+--- x\n--- a/b\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-gone\n");
    expect(files.map((file) => [file.path, file.status])).toEqual([["a", "added"], ["b", "removed"]]);
    expect(files[0]!.hunks[0]![0]![3]).toBe("--- x");
  });

  it("is nothing if it is no patch", () => {
    expect(parsePatch("hello\n+ there")).toEqual([]);
  });
});

describe("a flame", () => {
  const nodes = [node("all", -1, 10), node("one", 0, 6), node("two", 0, 2)];

  it("gives each call its share of the width", () => {
    const boxes = flameBoxes(nodes, flameValues(nodes, "dollars"), -1);
    expect(boxes.map((box) => [box.index, box.depth, box.left, box.width])).toEqual([[0, 0, 0, 1], [1, 1, 0, 0.6], [2, 1, 0.6, 0.2]]);
  });

  it("zooms, and leaves out what is too narrow to see", () => {
    const values = flameValues(nodes, "dollars");
    expect(flameBoxes(nodes, values, 1).map((box) => box.index)).toEqual([1]);
    expect(flameBoxes(nodes, values, -1, 0.3).map((box) => box.index)).toEqual([0, 1]);
    expect(pathTo(nodes, 2)).toEqual([0, 2]);
  });

  it("is as long as its parts if the whole has not ended", () => {
    const open = [node("all", -1, 0), node("one", 0, 0, 40), node("two", 0, 0, 60)];
    expect([...flameValues(open, "time")]).toEqual([100, 40, 60]);
  });

  it("is made of sums by name, and an unknown price stays unknown", () => {
    const costs: CostsShape = {
      by: ["project", "model"], since: null, until: null, total: spent(1), not_merged: null,
      rows: [
        { names: { project: "shop", model: "small" }, spent: spent(0.5, 10) },
        { names: { project: "shop", model: "big" }, spent: spent(null, 20, 1) },
        { names: { project: null, model: null }, spent: spent(0) },
      ],
    };
    const made = nodesOfCosts(costs);
    expect(made.map((each) => [each.name, each.parent])).toEqual([["shop", -1], ["small", 0], ["big", 0], ["no project", -1]]);
    expect(made[0]!.spent).toMatchObject({ cost_usd: 0.5, unpriced: 1, input_tokens: 30 });
    expect(made[2]!.spent.cost_usd).toBeNull();
  });
});

describe("the filter of sessions", () => {
  it("leaves the words that are no names", () => {
    expect(freeWords("status:waiting cart total tag:team=web")).toBe("cart total");
    expect(freeWords("status:waiting")).toBe("");
  });

  it("marks the words that were looked for", () => {
    expect(splitAtWords("The Cart (x)", "cart (x)")).toEqual([
      { text: "The ", isHit: false }, { text: "Cart", isHit: true }, { text: " ", isHit: false }, { text: "(x)", isHit: true },
    ]);
  });
});

describe("the palette", () => {
  it("prefers words to letters, and starts of words to others", () => {
    const whole = fit("Compare with clamp", "clamp")!;
    expect(whole).toBeGreaterThan(fit("unclamped", "clamp")!);
    expect(fit("cold lamps", "clamp")).toBeGreaterThan(0);
    expect(fit("cold lamps", "clamp", false)).toBeNull();
    expect(fit("anything", "")).toBe(0);
    expect(fit("anything", "zz")).toBeNull();
  });
});

describe("conflicts of a merge", () => {
  it("have all sides, those on which it is gone too", () => {
    const found = conflictsOf({
      fields: { conflicts: { color: { warm: "red" }, "(workspace)/a.py": { warm: { entry: {}, text: "x" }, cold: { entry: null, text: null } } }, retracted: { color: ["cold"] } },
    });
    expect(found.map((each) => [each.key, each.path])).toEqual([["color", ""], ["(workspace)/a.py", "a.py"]]);
    expect(found[0]!.sides).toEqual([["warm", "red"], ["cold", null]]);
    expect(sideText(found[1]!.sides[0]![1], true)).toBe("x");
    expect(conflictsOf({ fields: {} })).toEqual([]);
  });
});

describe("a budget", () => {
  it("burns down along the log", () => {
    const track = {
      log: "a", last: 9,
      start: { seq: 0, tree: null, facts: {}, pending: {}, verdicts: {}, placement_text: "", status: "open", spent: spent(0), budget: { tokens_max: 100 }, budget_left: { tokens_max: 100 }, last_message_seq: 0 },
      changes: [{ seq: 4, budget_left: { tokens_max: 70 } }, { seq: 7, budget_left: { tokens_max: 20 } }],
    } as unknown as TrackShape;
    expect(burnLines(track)).toEqual([{ name: "tokens_max", limit: 100, points: [[0, 100], [4, 70], [7, 20], [9, 20]], left: 20 }]);
  });
});

describe("what lies behind a place", () => {
  const event = (seq: number, kind: string, call: string, body: object) => ({ session: "a", seq, kind, call, body }) as unknown as EventShape;
  const events = [
    event(1, "ToolRequested", "1", { tool: "wire", effect: "at_most_once", arguments: { to: "ACME" } }),
    event(2, "ToolRequested", "2", { tool: "read_file", effect: "pure", arguments: {} }),
    event(3, "ToolReturned", "2", {}),
    event(4, "ToolResolved", "1", {}),
    event(5, "ModelAsked", "3", { model: "small" }),
  ];
  const source = {
    events: (_log: string, first: number) => ({ get: async () => ({ log: "a", first, tip: 5, events: events.filter((each) => each.seq >= first) }) }),
  } as unknown as Source;

  it("has the calls that came to their end after it", async () => {
    const ahead = await lookAhead(source, null, "a", 3);
    expect(ahead.calls.map((call) => [call.tool, call.isOutward])).toEqual([["wire", true]]);
    expect([...ahead.models]).toEqual([["small", 1]]);
  });

  it("is told in few words", () => {
    expect(countedWords(["shell", "wire", "shell"])).toBe("shell ×2, wire");
  });
});

describe("the cost of a session", () => {
  const amount = (cost_usd: number | null, model_calls: number) => ({ ...NOTHING_SPENT.spent, cost_usd, model_calls });

  it("names what was spent in branches that were not merged", () => {
    expect(spentText(amount(0.42, 3), amount(0.1, 1))).toBe("$0.42, $0.10 of it in branches that were not merged");
    expect(spentText(amount(0.42, 3), amount(0, 0))).toBe("$0.42");
    expect(spentText(amount(0.42, 3), null)).toBe("$0.42");
  });
});
