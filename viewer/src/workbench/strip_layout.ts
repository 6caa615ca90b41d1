/** The geometry of the strip: columns of steps or of time, rows of branches, marks below. */

import { foldTime, type FoldedTime } from "../base/time_fold";
import type { RowOutline, Rows } from "../base/rows";
import { lastAtMost, markBit } from "../base/rows";

export type StripMode = "step" | "time";

export interface StripLayout {
  readonly mode: StripMode;
  readonly width: number;
  readonly count: number;
  /** The left edge of each step, in pixels. */
  readonly xs: Float64Array;
  readonly step: number;
  /** The steps in the order of their edges: by time they are not in the order of rows. */
  readonly order: Int32Array | null;
  readonly sorted: Float64Array | null;
  readonly gaps: FoldedTime["gaps"];
  /** The row of the strip that each branch has. */
  readonly lines: Uint16Array;
  readonly lineCount: number;
}

const LINES_MAX = 10;

/** Give each branch a line. With many branches those in one lane share theirs. */
export function branchLines(rows: Rows): { lines: Uint16Array; lineCount: number } {
  const { branches, stretches, lane_count } = rows.family;
  const lines = new Uint16Array(branches.length);
  if (branches.length <= LINES_MAX) {
    branches.forEach((_, index) => (lines[index] = index));
    return { lines, lineCount: branches.length };
  }
  for (const stretch of stretches) lines[stretch.branch] = stretch.lane;
  return { lines, lineCount: Math.max(1, lane_count) };
}

export function stripLayout(rows: Rows, outline: RowOutline, width: number, mode: StripMode): StripLayout {
  const count = outline.count;
  const { lines, lineCount } = branchLines(rows);
  const xs = new Float64Array(count);
  if (mode === "time") {
    const folded = foldTime(outline.times);
    const room = Math.max(1, width - 4);
    for (let row = 0; row < count; row += 1) xs[row] = folded.positions[row]! * room;
    const order = Int32Array.from({ length: count }, (_, index) => index).sort((a, b) => xs[a]! - xs[b]! || a - b);
    const sorted = Float64Array.from(order, (row) => xs[row]!);
    const gaps = folded.gaps.map((gap) => ({ ...gap, from: gap.from * room, to: gap.to * room }));
    return { mode, width, count, xs, step: 3, order, sorted, gaps, lines, lineCount };
  }
  const step = count ? width / count : width;
  for (let row = 0; row < count; row += 1) xs[row] = row * step;
  return { mode, width, count, xs, step, order: null, sorted: null, gaps: [], lines, lineCount };
}

/** Return the row at a position of the pointer. */
export function rowAtX(layout: StripLayout, x: number): number {
  if (layout.count === 0) return -1;
  if (layout.mode === "step") return Math.max(0, Math.min(layout.count - 1, Math.floor(x / layout.step)));
  const sorted = layout.sorted!;
  const before = Math.max(0, lastAtMost(sorted, x));
  const after = Math.min(layout.count - 1, before + 1);
  const isNearer = Math.abs(sorted[after]! - x) < Math.abs(sorted[before]! - x);
  return layout.order![isNearer ? after : before]!;
}

export function xOfRow(layout: StripLayout, row: number): number {
  if (row < 0 || row >= layout.count) return 0;
  return layout.mode === "step" ? layout.xs[row]! + layout.step / 2 : layout.xs[row]! + 1.5;
}

// The marks stand in three lines: what changed, what was judged or went wrong, what people and the
// structure did. In a line the more urgent mark is drawn last.
export const MARK_LINES: readonly (readonly ["files" | "passed" | "failed" | "approval" | "kill" | "merge" | "compaction" | "fork" | "rewind" | "memory", number][])[] = [
  [["files", markBit("files")]],
  [["passed", markBit("passed")], ["kill", markBit("kill")], ["failed", markBit("failed")]],
  [
    ["fork", markBit("fork")], ["memory", markBit("memory")], ["compaction", markBit("compaction")],
    ["merge", markBit("merge")], ["rewind", markBit("rewind")], ["approval", markBit("approval")],
  ],
];

export interface MarkColumn {
  /** The middle of the column, in pixels. */
  readonly x: number;
  /** All marks of the steps in it. */
  readonly bits: number;
  readonly first: number;
  readonly count: number;
}

/** Gather the marks in columns of at least `least` pixels: none is lost, however many steps share one. */
export function markColumns(layout: StripLayout, marks: ArrayLike<number>, least = 5): MarkColumn[] {
  const columns = new Map<number, { bits: number; first: number; count: number; x: number }>();
  const size = Math.max(least, layout.mode === "step" ? layout.step : least);
  for (let row = 0; row < layout.count; row += 1) {
    const bits = marks[row]!;
    if (!bits) continue;
    const at = Math.floor((layout.xs[row]! + 0.001) / size);
    const column = columns.get(at);
    if (column) {
      column.bits |= bits;
      column.count += 1;
    } else columns.set(at, { bits, first: row, count: 1, x: layout.mode === "step" && layout.step >= least ? xOfRow(layout, row) : (at + 0.5) * size });
  }
  return [...columns.values()];
}
