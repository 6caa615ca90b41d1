/** The lines by which two texts differ, for a page without a server. */

import type { DiffLine } from "../shapes";

const CONTEXT = 3;
const LINES_MAX = 2000;
/** Edits beyond which the middle of a file is shown as replaced: the search grows with its square. */
const EDITS_MAX = 1500;

interface Step {
  readonly left: number;
  readonly right: number;
}

/** Return the pairs of equal lines between the ends that both texts share (Myers' search). */
export function matches(left: readonly string[], right: readonly string[]): Step[] {
  let head = 0;
  while (head < left.length && head < right.length && left[head] === right[head]) head += 1;
  let tail = 0;
  while (
    tail < left.length - head &&
    tail < right.length - head &&
    left[left.length - 1 - tail] === right[right.length - 1 - tail]
  )
    tail += 1;
  const same: Step[] = [];
  for (let i = 0; i < head; i += 1) same.push({ left: i, right: i });
  const middle = search(left.slice(head, left.length - tail), right.slice(head, right.length - tail));
  for (const each of middle) same.push({ left: each.left + head, right: each.right + head });
  for (let i = tail; i > 0; i -= 1) same.push({ left: left.length - i, right: right.length - i });
  return same;
}

function search(left: readonly string[], right: readonly string[]): Step[] {
  const limit = Math.min(left.length + right.length, EDITS_MAX);
  const trail: Map<number, number>[] = [];
  let reach = new Map<number, number>([[1, 0]]);
  for (let edits = 0; edits <= limit; edits += 1) {
    const next = new Map(reach);
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
      let x = down ? (reach.get(k + 1) ?? 0) : (reach.get(k - 1) ?? 0) + 1;
      while (x < left.length && x - k < right.length && left[x] === right[x - k]) x += 1;
      next.set(k, x);
      if (x >= left.length && x - k >= right.length) {
        trail.push(reach);
        return walkBack(trail, left.length, right.length);
      }
    }
    trail.push(reach);
    reach = next;
  }
  return [];
}

/** Follow the furthest reaches back to the beginning, and collect the equal lines on the way. */
function walkBack(trail: readonly Map<number, number>[], x: number, y: number): Step[] {
  const same: Step[] = [];
  for (let edits = trail.length - 1; edits >= 0; edits -= 1) {
    const reach = trail[edits]!;
    const k = x - y;
    const down = k === -edits || (k !== edits && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
    const before = down ? k + 1 : k - 1;
    const startX = reach.get(before) ?? 0;
    const startY = startX - before;
    while (x > startX && y > startY) {
      x -= 1;
      y -= 1;
      same.push({ left: x, right: y });
    }
    x = startX;
    y = startY;
  }
  return same.reverse();
}

/** Return all lines of both texts in their order, each with its mark. */
export function allLines(left: readonly string[], right: readonly string[]): DiffLine[] {
  const lines: DiffLine[] = [];
  let i = 0;
  let j = 0;
  for (const { left: x, right: y } of [...matches(left, right), { left: left.length, right: right.length }]) {
    while (i < x) lines.push(["-", i + 1, 0, left[i++]!]);
    while (j < y) lines.push(["+", 0, j + 1, right[j++]!]);
    if (x < left.length && y < right.length) lines.push([" ", ++i, ++j, left[x]!]);
  }
  return lines;
}

export interface LineDiff {
  readonly added: number;
  readonly removed: number;
  readonly hunks: DiffLine[][];
  readonly is_cut: boolean;
}

export function lineDiff(left: readonly string[], right: readonly string[]): LineDiff {
  const lines = allLines(left, right);
  const changed = lines.flatMap((line, at) => (line[0] === " " ? [] : [at]));
  const hunks: DiffLine[][] = [];
  let shown = 0;
  let end = 0;
  for (const at of changed) {
    if (shown >= LINES_MAX) break;
    const start = Math.max(at - CONTEXT, end);
    if (start > end || hunks.length === 0) hunks.push([]);
    const hunk = hunks[hunks.length - 1]!;
    const stop = Math.min(at + CONTEXT + 1, lines.length);
    for (let i = Math.max(start, end); i < stop; i += 1) {
      hunk.push(lines[i]!);
      shown += 1;
    }
    end = stop;
  }
  return {
    added: changed.filter((at) => lines[at]![0] === "+").length,
    removed: changed.filter((at) => lines[at]![0] === "-").length,
    hunks,
    is_cut: shown >= LINES_MAX,
  };
}
