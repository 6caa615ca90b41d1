/** The state of a session at a place, from its track: no question per pixel. */

import type { TrackChange, TrackShape, TrackState } from "../shapes";

type Table<T> = { [key: string]: T };

function applyTable<T>(table: Table<T>, changes: { readonly [key: string]: T | null } | undefined): void {
  if (!changes) return;
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) delete table[key];
    else table[key] = value;
  }
}

const PLAIN = [
  "tree", "placement_text", "status", "spent", "budget", "budget_left", "last_message_seq",
] as const satisfies readonly (keyof TrackChange)[];

/** Return the state at `seq`, which the piece has to hold. */
export function stateAt(track: TrackShape, seq: number): TrackState {
  const state = {
    ...track.start,
    facts: { ...track.start.facts },
    pending: { ...track.start.pending },
    verdicts: { ...track.start.verdicts },
  } as Record<string, unknown> & TrackState;
  const made = state as { -readonly [K in keyof TrackState]: TrackState[K] };
  for (const change of track.changes) {
    if (change.seq > seq) break;
    for (const name of PLAIN) if (change[name] !== undefined) (state as Record<string, unknown>)[name] = change[name];
    applyTable(made.facts as Table<unknown>, change.facts);
    applyTable(made.pending as Table<unknown>, change.pending);
    applyTable(made.verdicts as Table<unknown>, change.verdicts);
  }
  made.seq = seq;
  return made;
}

const CHUNK = 500;

/** Return the seq to ask for the piece of a track by: all places of a piece are one question. Pieces
 * are counted from the place at which the log was forked.
 */
export function trackSeq(seq: number, forked: number): number {
  return forked + Math.floor(Math.max(0, seq - forked - 1) / CHUNK) * CHUNK + 1;
}

/** Return a piece with what came after it. */
export function joinTracks(piece: TrackShape, rest: TrackShape): TrackShape {
  const added = rest.changes.filter((change) => change.seq > piece.last);
  return { ...piece, last: Math.max(piece.last, rest.last), changes: [...piece.changes, ...added] };
}
