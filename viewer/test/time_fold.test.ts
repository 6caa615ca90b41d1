import { describe, expect, it } from "vitest";
import { foldTime } from "../src/base/time_fold";

describe("time on the strip", () => {
  it("folds idle gaps and says how long they are", () => {
    const hour = 3_600_000;
    const times = [0, 1000, 2000, 2000 + 5 * hour, 3000 + 5 * hour, 4000 + 5 * hour];
    const { positions, gaps } = foldTime(times);
    expect(gaps).toHaveLength(1);
    expect(gaps[0]!.ms).toBe(5 * hour);
    expect(gaps[0]!.to - gaps[0]!.from).toBeCloseTo(0.03);
    expect(positions[3]! - positions[2]!).toBeCloseTo(0.03);
    expect(positions[5]).toBeCloseTo(1);
  });

  it("keeps the order of time, and stays between 0 and 1", () => {
    let seed = 5;
    const next = () => (seed = (seed * 16_807) % 2_147_483_647) / 2_147_483_647;
    for (let round = 0; round < 50; round += 1) {
      const times = Array.from({ length: 60 }, () => next() * 10 ** (2 + next() * 7));
      const { positions, gaps } = foldTime(times);
      const order = times.map((_, index) => index).sort((a, b) => times[a]! - times[b]!);
      for (let i = 1; i < order.length; i += 1) expect(positions[order[i]!]!).toBeGreaterThanOrEqual(positions[order[i - 1]!]! - 1e-12);
      expect(Math.min(...positions)).toBeGreaterThanOrEqual(0);
      expect(Math.max(...positions)).toBeLessThanOrEqual(1);
      expect(gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0)).toBeLessThanOrEqual(1 + 1e-9);
    }
  });

  it("lays out none, one, and equal times", () => {
    expect(foldTime([]).positions).toHaveLength(0);
    expect([...foldTime([7]).positions]).toEqual([0]);
    expect([...foldTime([7, 7, 7]).positions]).toEqual([0, 0, 0]);
  });

  it("is not all gaps if there is nothing else", () => {
    const { positions } = foldTime([0, 1e9, 2e9]);
    expect([...positions]).toEqual([0, 0.5, 1]);
  });
});
