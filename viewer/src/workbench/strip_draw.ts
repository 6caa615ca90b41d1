/** The strip on its canvas. */

import { gapText } from "../base/format";
import { laneColor } from "../base/lanes";
import type { RowOutline, Rows } from "../base/rows";
import type { StepMark } from "../shapes";
import { denseMarks, MARK_LINES, markColumns, xOfRow, type StripLayout } from "./strip_layout";

export interface StripColors {
  readonly lanes: readonly string[];
  readonly ink: string;
  readonly faint: string;
  readonly line: string;
  readonly ground: string;
  readonly accent: string;
  readonly good: string;
  readonly bad: string;
  readonly warn: string;
  readonly font: string;
}

export const TOP = 10;
export const MARK_HEIGHT = 9;

export function lineHeight(lines: number): number {
  return Math.max(2, Math.min(11, 44 / lines));
}

/** Draw what changes with the session alone: all steps, faint, the marks and the gaps of time. */
export function drawBase(canvas: CanvasRenderingContext2D, layout: StripLayout, rows: Rows, outline: RowOutline, colors: StripColors): void {
  rows.family.stretches.forEach((stretch, index) => {
    const start = rows.starts[index]!;
    drawStretch(canvas, layout, rows, index, start, start + stretch.step_count, 0.3, colors);
  });
  canvas.globalAlpha = 1;
  const height = lineHeight(layout.lineCount);
  drawMarks(canvas, layout, outline, TOP + layout.lineCount * height + 4, colors);
  drawGaps(canvas, layout, height, colors);
}

/** Draw what changes with the cursor: the steps that lead to it, in full colour. */
export function drawPast(canvas: CanvasRenderingContext2D, layout: StripLayout, rows: Rows, past: Uint8Array | null, cursor: number, colors: StripColors): void {
  const here = cursor >= 0 ? rows.stretchAt(cursor) : -1;
  rows.family.stretches.forEach((stretch, index) => {
    if (past?.[index] !== 1) return;
    const start = rows.starts[index]!;
    const end = index === here ? cursor + 1 : start + stretch.step_count;
    drawStretch(canvas, layout, rows, index, start, end, 1, colors);
  });
  canvas.globalAlpha = 1;
}

/** Hollow the bars of steps that a rewind went back behind: they happened, and do not count. */
export function drawRewound(canvas: CanvasRenderingContext2D, layout: StripLayout, rows: Rows, spans: readonly (readonly [number, number])[], colors: StripColors): void {
  const height = lineHeight(layout.lineCount);
  const bar = Math.max(1.5, Math.min(6, height - 2));
  canvas.fillStyle = colors.ground;
  for (const [from, to] of spans) {
    const line = layout.lines[rows.stepAt(from)!.branch]!;
    drawBars(canvas, layout, from, to, TOP + line * height + (height - bar) / 2 + bar / 4, bar / 2, 0, 1);
  }
}

function drawStretch(
  canvas: CanvasRenderingContext2D, layout: StripLayout, rows: Rows, index: number,
  from: number, to: number, alpha: number, colors: StripColors,
): void {
  if (from >= to) return;
  const branch = rows.family.stretches[index]!.branch;
  const height = lineHeight(layout.lineCount);
  const bar = Math.max(1.5, Math.min(6, height - 2));
  canvas.fillStyle = colors.lanes[laneIndex(rows.family.branches[branch]!.color)]!;
  const y = TOP + layout.lines[branch]! * height + (height - bar) / 2;
  drawBars(canvas, layout, from, to, y, bar, layout.step > 4 ? 1 : 0, alpha);
}

export function laneIndex(color: number): number {
  return Number(laneColor(color).token.slice(-1));
}

function drawBars(
  canvas: CanvasRenderingContext2D, layout: StripLayout, from: number, to: number,
  y: number, bar: number, room: number, alpha: number,
): void {
  if (from >= to) return;
  canvas.globalAlpha = alpha;
  if (layout.mode === "step" && room === 0) {
    // Steps are narrower than a gap between them: one bar stands for the stretch.
    canvas.fillRect(layout.xs[from]!, y, Math.max(1, (to - from) * layout.step), bar);
    return;
  }
  let last = -1;
  for (let row = from; row < to; row += 1) {
    const x = layout.xs[row]!;
    if (layout.mode === "time" && Math.floor(x) === last) continue;
    last = Math.floor(x);
    const width = layout.mode === "time" ? layout.step : Math.max(1, layout.step - room);
    canvas.fillRect(x, y, width, bar);
  }
}

function drawGaps(canvas: CanvasRenderingContext2D, layout: StripLayout, height: number, colors: StripColors): void {
  canvas.font = colors.font;
  canvas.textBaseline = "middle";
  canvas.textAlign = "center";
  let free = -1;
  for (const gap of layout.gaps) {
    const middle = (gap.from + gap.to) / 2;
    canvas.strokeStyle = colors.line;
    canvas.lineWidth = 1;
    canvas.beginPath();
    canvas.setLineDash([2, 2]);
    canvas.moveTo(Math.round(middle) + 0.5, TOP);
    canvas.lineTo(Math.round(middle) + 0.5, TOP + layout.lineCount * height);
    canvas.stroke();
    canvas.setLineDash([]);
    const text = gapText(gap.ms);
    const half = canvas.measureText(text).width / 2 + 3;
    if (middle - half < free) continue;
    free = middle + half;
    canvas.fillStyle = colors.ground;
    canvas.fillRect(middle - half, TOP + (layout.lineCount * height) / 2 - 7, half * 2, 14);
    canvas.fillStyle = colors.faint;
    canvas.fillText(text, middle, TOP + (layout.lineCount * height) / 2 + 0.5);
  }
}

function drawMarks(
  canvas: CanvasRenderingContext2D, layout: StripLayout, outline: RowOutline, top: number, colors: StripColors,
): void {
  const columns = markColumns(layout, outline.marks);
  const dense = denseMarks(columns, layout.width);
  for (const column of columns) {
    MARK_LINES.forEach((line, index) => {
      const found = line.filter(([, bit]) => column.bits & bit);
      const y = top + index * MARK_HEIGHT + MARK_HEIGHT / 2;
      // Two kinds in one place: both are seen, the more urgent one in front.
      found.forEach(([mark, bit], order) => {
        const x = column.x + (order - (found.length - 1) / 2) * 3;
        if (dense & bit) drawTick(canvas, mark, x, y, colors);
        else drawMark(canvas, mark, x, y, colors);
      });
    });
  }
}

/** A mark that stands nearly everywhere is a tick: shapes side by side would be a pattern. */
function drawTick(canvas: CanvasRenderingContext2D, mark: StepMark, x: number, y: number, colors: StripColors): void {
  const color: Partial<Record<StepMark, string>> = { files: colors.ink, passed: colors.good, failed: colors.bad, kill: colors.bad, approval: colors.warn };
  canvas.fillStyle = color[mark] ?? colors.faint;
  canvas.fillRect(x - 1, y - 2.5, 2, 5);
}

/** Draw one mark, 6 px wide. The legend draws the same. */
export function drawMark(canvas: CanvasRenderingContext2D, mark: StepMark, x: number, y: number, colors: StripColors): void {
  const stroke = (color: string, width = 1.5) => {
    canvas.strokeStyle = color;
    canvas.lineWidth = width;
    canvas.lineCap = "round";
    canvas.beginPath();
  };
  switch (mark) {
    case "files":
      canvas.fillStyle = colors.ink;
      canvas.fillRect(x - 1, y - 3, 2, 6);
      return;
    case "passed":
      stroke(colors.good, 1.75);
      canvas.moveTo(x - 3, y);
      canvas.lineTo(x - 1, y + 2.5);
      canvas.lineTo(x + 3, y - 2.5);
      canvas.stroke();
      return;
    case "failed":
      stroke(colors.bad, 1.75);
      canvas.moveTo(x - 2.5, y - 2.5);
      canvas.lineTo(x + 2.5, y + 2.5);
      canvas.moveTo(x + 2.5, y - 2.5);
      canvas.lineTo(x - 2.5, y + 2.5);
      canvas.stroke();
      return;
    case "kill":
      canvas.fillStyle = colors.bad;
      canvas.beginPath();
      canvas.moveTo(x + 1, y - 4);
      canvas.lineTo(x - 2.5, y + 0.5);
      canvas.lineTo(x, y + 0.5);
      canvas.lineTo(x - 1, y + 4);
      canvas.lineTo(x + 2.5, y - 0.5);
      canvas.lineTo(x, y - 0.5);
      canvas.fill();
      return;
    case "approval":
      canvas.fillStyle = colors.warn;
      canvas.beginPath();
      canvas.arc(x, y, 2.75, 0, Math.PI * 2);
      canvas.fill();
      return;
    case "merge":
    case "fork": {
      const way = mark === "merge" ? 1 : -1;
      stroke(colors.faint);
      canvas.moveTo(x - 2.5, y - 3 * way);
      canvas.lineTo(x, y);
      canvas.lineTo(x + 2.5, y - 3 * way);
      canvas.moveTo(x, y);
      canvas.lineTo(x, y + 3 * way);
      canvas.stroke();
      return;
    }
    case "rewind":
      canvas.fillStyle = colors.faint;
      canvas.beginPath();
      canvas.moveTo(x + 2.5, y - 3);
      canvas.lineTo(x - 3, y);
      canvas.lineTo(x + 2.5, y + 3);
      canvas.fill();
      return;
    case "compaction":
      stroke(colors.faint);
      for (const dy of [-2, 2]) {
        canvas.moveTo(x - 2.5, y + dy);
        canvas.lineTo(x + 2.5, y + dy);
      }
      canvas.stroke();
      return;
    case "memory":
      stroke(colors.faint);
      canvas.strokeRect(x - 2, y - 2.5, 4, 5);
  }
}

export function drawCursor(
  canvas: CanvasRenderingContext2D, layout: StripLayout, row: number, height: number, color: string, isGhost: boolean,
): void {
  if (row < 0) return;
  const x = Math.round(xOfRow(layout, row)) + 0.5;
  canvas.globalAlpha = isGhost ? 0.45 : 1;
  canvas.strokeStyle = color;
  canvas.fillStyle = color;
  canvas.lineWidth = isGhost ? 1 : 2;
  canvas.beginPath();
  canvas.moveTo(x, 4);
  canvas.lineTo(x, height - 2);
  canvas.stroke();
  if (!isGhost) {
    canvas.beginPath();
    canvas.arc(x, 5, 4, 0, Math.PI * 2);
    canvas.fill();
  }
  canvas.globalAlpha = 1;
}
