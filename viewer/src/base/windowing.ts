/** The rows of a long list that are in sight. */

export interface Sight {
  readonly first: number;
  /** Behind the last one. */
  readonly end: number;
}

/** Return the rows in sight, and some more on both sides. */
export function rowsInSight(top: number, height: number, row: number, count: number, more = 6): Sight {
  const first = Math.max(0, Math.min(count, Math.floor(top / row)) - more);
  const end = Math.min(count, Math.ceil((top + height) / row) + more);
  return { first: Math.min(first, end), end };
}

/** Return where to scroll to bring a row into sight; null: it is in sight. */
export function scrollFor(at: number, top: number, height: number, row: number, margin = 2): number | null {
  const from = at * row;
  const room = Math.min(margin * row, Math.max(0, (height - row) / 2));
  if (from < top + room) return Math.max(0, from - (from + row < top || from > top + height ? (height - row) / 2 : room));
  if (from + row > top + height - room)
    return from > top + height + row ? from - (height - row) / 2 : from + row + room - height;
  return null;
}

/** Browsers draw no element higher than some 30 million pixels: beyond it scrolling is scaled. */
export const HEIGHT_MAX = 12_000_000;
