/** The lines of the lanes, for the rows in sight. The layout comes from the family; here it becomes
 * paths. A branch bends off right below the step it was forked from, and runs in its own column.
 */

import type { Rows } from "./rows";

export interface Link {
  readonly from: number; // row
  readonly fromLane: number;
  readonly to: number;
  readonly toLane: number;
  readonly kind: "body" | "fork" | "merge";
  readonly branch: number;
}

export interface LaneLine {
  readonly d: string;
  readonly branch: number;
  readonly kind: Link["kind"];
}

/** Return the last row of a stretch, or of the one it comes from if it has no steps. */
function anchorOf(rows: Rows, index: number, seen = 0): { row: number; lane: number } | null {
  const stretch = rows.family.stretches[index];
  if (!stretch || seen > 1000) return null;
  if (stretch.step_count > 0)
    return { row: rows.starts[index]! + stretch.step_count - 1, lane: stretch.lane };
  const parent = stretch.parents[0];
  return parent === undefined ? null : anchorOf(rows, parent, seen + 1);
}

export function laneLinks(rows: Rows): Link[] {
  const links: Link[] = [];
  rows.family.stretches.forEach((stretch, index) => {
    if (stretch.step_count === 0) return;
    const start = rows.starts[index]!;
    const { lane, branch } = stretch;
    if (stretch.step_count > 1)
      links.push({ from: start, fromLane: lane, to: start + stretch.step_count - 1, toLane: lane, kind: "body", branch });
    stretch.parents.forEach((parent, order) => {
      const anchor = anchorOf(rows, parent);
      if (!anchor || anchor.row >= start) return;
      const isOwn = rows.family.stretches[parent]!.branch === branch;
      const kind = order > 0 ? "merge" : isOwn ? "body" : "fork";
      links.push({
        from: anchor.row,
        fromLane: anchor.lane,
        to: start,
        toLane: lane,
        kind,
        branch: order > 0 ? rows.family.stretches[parent]!.branch : branch,
      });
    });
  });
  return links;
}

export interface LaneSize {
  readonly row: number;
  readonly lane: number;
  readonly left: number;
}

/** Return the size of the lanes: narrower the more there are, and never wider than a fifth. */
export function laneSize(lanes: number, row: number): LaneSize {
  return { row, lane: lanes <= 1 ? 14 : Math.max(3, Math.min(14, 110 / lanes)), left: 14 };
}

export function laneX(lane: number, size: LaneSize): number {
  return size.left + lane * size.lane;
}

export function lanesWidth(lanes: number, size: LaneSize): number {
  return Math.ceil(size.left + Math.max(0, lanes - 1) * size.lane + 12);
}

/** Return the path of a link. y is counted from the top of row `first`, cut to rows in sight. */
export function linkPath(link: Link, first: number, end: number, size: LaneSize): string {
  const y = (row: number) => (row - first + 0.5) * size.row;
  const high = y(first - 1);
  const low = y(end);
  const cut = (value: number) => Math.max(high, Math.min(low, value));
  const x1 = laneX(link.fromLane, size);
  const x2 = laneX(link.toLane, size);
  const y1 = y(link.from);
  const y2 = y(link.to);
  if (x1 === x2) return `M${x1} ${cut(y1)}V${cut(y2)}`;
  const half = size.row / 2;
  const bend = (top: number) =>
    `C${x1} ${top + half} ${x2} ${top + half} ${x2} ${top + size.row}`;
  if (link.kind === "merge") {
    const top = y2 - size.row;
    const straight = `M${x1} ${cut(y1)}V${cut(top)}`;
    return top > low ? straight : `${straight}${bend(top)}`;
  }
  const below = y1 + size.row;
  if (y1 < high) return `M${x2} ${cut(below)}V${cut(y2)}`;
  return `M${x1} ${y1}${bend(y1)}${y2 > below ? `V${cut(y2)}` : ""}`;
}

export function linesInSight(links: readonly Link[], first: number, end: number, size: LaneSize): LaneLine[] {
  const lines: LaneLine[] = [];
  for (const link of links) {
    if (link.from >= end || link.to < first) continue;
    lines.push({ d: linkPath(link, first, end, size), branch: link.branch, kind: link.kind });
  }
  return lines;
}

/** The colours of lanes: the root has the first, branches go round the other seven. */
export function laneColor(color: number): { token: string; isDashed: boolean } {
  if (color === 0) return { token: "--lane-0", isDashed: false };
  return { token: `--lane-${((color - 1) % 7) + 1}`, isDashed: color > 7 };
}
