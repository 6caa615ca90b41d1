import { describe, expect, it } from "vitest";
import { rowsInSight, scrollFor } from "../src/base/windowing";

describe("rows in sight", () => {
  it("are few, however long the list is", () => {
    for (const top of [0, 1, 12_345, 2_599_000]) {
      const sight = rowsInSight(top, 800, 26, 100_000);
      expect(sight.end - sight.first).toBeLessThanOrEqual(Math.ceil(800 / 26) + 13);
      expect(sight.first * 26).toBeLessThanOrEqual(top);
      expect(sight.end * 26).toBeGreaterThanOrEqual(Math.min(top + 800, 100_000 * 26));
    }
  });

  it("are none of an empty list, and stay in the list", () => {
    expect(rowsInSight(500, 800, 26, 0)).toEqual({ first: 0, end: 0 });
    const sight = rowsInSight(1e9, 800, 26, 10);
    expect(sight.end).toBe(10);
    expect(sight.first).toBeLessThanOrEqual(10);
  });

  it("come into sight with a scroll, and not without need", () => {
    expect(scrollFor(10, 0, 800, 26)).toBeNull();
    for (const at of [0, 3, 500, 99_999]) {
      const top = scrollFor(at, 40_000, 800, 26)!;
      expect(top).toBeLessThanOrEqual(at * 26);
      expect(top + 800).toBeGreaterThanOrEqual(at * 26 + 26);
    }
  });

  it("scroll by a row when the next one is below the edge", () => {
    const top = scrollFor(31, 26, 780, 26, 2)!;
    expect(top).toBeGreaterThan(26);
    expect(top - 26).toBeLessThanOrEqual(3 * 26);
  });
});
