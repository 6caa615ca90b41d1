/** Time on the strip: idle gaps are folded to a fixed width and labelled. */

export interface Gap {
  /** The gap lies before this point, in the order of time. */
  readonly at: number;
  readonly ms: number;
}

export interface FoldedTime {
  /** A position between 0 and 1 for each point, in the order given. */
  readonly positions: Float64Array;
  readonly gaps: readonly { readonly from: number; readonly to: number; readonly ms: number }[];
}

/** Lay points out by time. A gap is folded if it is longer than `fold_ms`, which follows from the
 * points by default: eight times the mean of what is left when the longest gaps are taken away.
 * A folded gap has the width `gap_width`, and all of them together at most a third.
 */
export function foldTime(times: ArrayLike<number>, fold_ms?: number, gap_width = 0.03): FoldedTime {
  const count = times.length;
  const positions = new Float64Array(count);
  if (count === 0) return { positions, gaps: [] };
  const order = Array.from({ length: count }, (_, index) => index).sort((a, b) => times[a]! - times[b]! || a - b);
  const steps = new Float64Array(count);
  for (let i = 1; i < count; i += 1) steps[i] = times[order[i]!]! - times[order[i - 1]!]!;
  const limit = fold_ms ?? foldLimit(steps);
  let busy = 0;
  let folded = 0;
  for (let i = 1; i < count; i += 1) {
    if (steps[i]! > limit) folded += 1;
    else busy += steps[i]!;
  }
  const width = folded ? Math.min(gap_width, 1 / 3 / folded) : 0;
  const scale = busy > 0 ? (1 - width * folded) / busy : 0;
  // Nothing but gaps: they share the whole width.
  const each = busy > 0 ? width : folded ? 1 / folded : 0;
  const gaps: { from: number; to: number; ms: number }[] = [];
  let at = 0;
  for (let i = 0; i < count; i += 1) {
    if (i > 0 && steps[i]! > limit) {
      gaps.push({ from: at, to: at + each, ms: steps[i]! });
      at += each;
    } else at += steps[i]! * scale;
    positions[order[i]!] = Math.min(1, at);
  }
  return { positions, gaps };
}

function foldLimit(steps: Float64Array): number {
  const sorted = Float64Array.from(steps).sort();
  const most = Math.max(1, Math.floor(sorted.length * 0.9));
  let sum = 0;
  for (let i = 0; i < most; i += 1) sum += sorted[i]!;
  return Math.max(10_000, (sum / most) * 8);
}
