/** The rows of a family: the steps of its stretches, one stretch after another. */

import type { FamilyShape, OutlineShape, StepMark, StepState, StepType, StretchShape } from "../shapes";

export interface Place {
  readonly log: string;
  readonly seq: number;
}

export interface RowStep {
  readonly log: string;
  /** Among the steps of its log. */
  readonly index: number;
  readonly stretch: number;
  readonly branch: number;
}

/** Return the index of the last value that is not above `limit`; -1: all are. */
export function lastAtMost(values: ArrayLike<number>, limit: number, count = values.length): number {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The layout of rows. It follows from the family alone: no step has to be known. */
export class Rows {
  /** The first row of each stretch. */
  readonly starts: Int32Array;
  readonly count: number;
  readonly branchOf = new Map<string, number>();
  /** Stretches by branch, in the order of the log. */
  readonly stretchesOf: readonly (readonly number[])[];

  constructor(readonly family: FamilyShape) {
    family.branches.forEach((branch, index) => this.branchOf.set(branch.log, index));
    this.starts = new Int32Array(family.stretches.length);
    const of: number[][] = family.branches.map(() => []);
    let row = 0;
    family.stretches.forEach((stretch, index) => {
      this.starts[index] = row;
      row += stretch.step_count;
      of[stretch.branch]!.push(index);
    });
    for (const each of of) each.sort((a, b) => family.stretches[a]!.first - family.stretches[b]!.first);
    this.stretchesOf = of;
    this.count = row;
  }

  stretchAt(row: number): number {
    // An empty stretch begins at the same row as the next one: the last that begins here has it.
    return lastAtMost(this.starts, row);
  }

  stepAt(row: number): RowStep | null {
    if (row < 0 || row >= this.count) return null;
    const index = this.stretchAt(row);
    const stretch = this.family.stretches[index]!;
    const branch = this.family.branches[stretch.branch]!;
    return {
      log: branch.log,
      index: stretch.first_step + row - this.starts[index]!,
      stretch: index,
      branch: stretch.branch,
    };
  }

  rowOfStep(log: string, step: number): number {
    const branch = this.branchOf.get(log);
    if (branch === undefined) return -1;
    for (const index of this.stretchesOf[branch]!) {
      const stretch = this.family.stretches[index]!;
      if (step >= stretch.first_step && step < stretch.first_step + stretch.step_count)
        return this.starts[index]! + step - stretch.first_step;
    }
    return -1;
  }

  /** Return the place in the log that wrote the event: a branch inherits the events before it. */
  ownPlace(place: Place): Place {
    let { log, seq } = place;
    for (let hops = 0; hops <= this.family.branches.length; hops += 1) {
      const index = this.branchOf.get(log);
      if (index === undefined) break;
      const branch = this.family.branches[index]!;
      if (!branch.parent || seq > branch.place) break;
      log = branch.parent.log;
    }
    return { log, seq };
  }
}

const TYPES: readonly StepType[] = [
  "message", "reply", "tool", "question", "verdict", "fact", "pending", "route", "fork", "merge",
  "rewind", "compaction", "placement", "run", "taken", "ended", "wait", "memory", "life", "budget",
  "failure", "bypass", "note",
];
const STATES: readonly StepState[] = ["done", "open", "waiting", "failed", "denied", "unknown"];
export const MARKS: readonly StepMark[] = [
  "files", "passed", "failed", "approval", "kill", "merge", "compaction", "fork", "rewind", "memory",
];

export function markBit(mark: StepMark): number {
  return 1 << MARKS.indexOf(mark);
}

export function marksIn(bits: number): StepMark[] {
  return MARKS.filter((_, index) => bits & (1 << index));
}

/** The outline of one log in arrays that grow. */
export class LogOutline {
  total = 0;
  firsts = new Int32Array(0);
  seqs = new Int32Array(0);
  times = new Float64Array(0);
  types = new Uint8Array(0);
  states = new Uint8Array(0);
  marks = new Uint16Array(0);
  /** Spans of seqs that rewinds went back behind. */
  rewound: OutlineShape["rewound"] = [];

  /** Take a piece that begins at or before the end of what is known. */
  take(piece: OutlineShape): void {
    const from = piece.from_index;
    const total = Math.max(piece.total, from + piece.seqs.length);
    this.#reserve(total);
    for (let i = 0; i < piece.seqs.length; i += 1) {
      const at = from + i;
      this.firsts[at] = piece.firsts[i]!;
      this.seqs[at] = piece.seqs[i]!;
      this.times[at] = piece.times_ms[i]!;
      this.types[at] = Math.max(0, TYPES.indexOf(piece.types[i]!));
      this.states[at] = Math.max(0, STATES.indexOf(piece.states[i]!));
      this.marks[at] = 0;
    }
    for (const [index, marks] of Object.entries(piece.marks))
      this.marks[Number(index)] = marks.reduce((bits, mark) => bits | markBit(mark), 0);
    this.total = total;
    this.rewound = piece.rewound;
  }

  typeAt(index: number): StepType {
    return TYPES[this.types[index]!]!;
  }

  stateAt(index: number): StepState {
    return STATES[this.states[index]!]!;
  }

  /** Return the first step, from an index on, that may still change. */
  firstOpen(from = 0): number {
    const at = this.states.subarray(from, this.total).findIndex((state) => state === 1 || state === 2 || state === 5);
    return at < 0 ? this.total : from + at;
  }

  /** Return the step that stands for an event: the one that ends there, else the last one that is
   * under way there, else the last begun. Steps may be under way at the same time.
   */
  indexAt(seq: number): number {
    const begun = lastAtMost(this.firsts, seq, this.total);
    const least = Math.max(0, begun - 64);
    for (let i = begun; i >= least; i -= 1) if (this.seqs[i] === seq) return i;
    for (let i = begun; i >= least; i -= 1) if (this.seqs[i]! > seq) return i;
    return Math.max(0, begun);
  }

  #reserve(size: number): void {
    if (size <= this.seqs.length) return;
    const room = Math.max(size, Math.ceil(this.seqs.length * 1.5), 64);
    const grow = <A extends Int32Array | Float64Array | Uint8Array | Uint16Array>(old: A, next: A): A => {
      next.set(old as never);
      return next;
    };
    this.firsts = grow(this.firsts, new Int32Array(room));
    this.seqs = grow(this.seqs, new Int32Array(room));
    this.times = grow(this.times, new Float64Array(room));
    this.types = grow(this.types, new Uint8Array(room));
    this.states = grow(this.states, new Uint8Array(room));
    this.marks = grow(this.marks, new Uint16Array(room));
  }
}

/** Return the rows that rewinds went back behind, as spans: the first row, and the one after the last. */
export function rewoundRows(rows: Rows, outlines: ReadonlyMap<string, LogOutline>): (readonly [number, number])[] {
  const found: (readonly [number, number])[] = [];
  rows.family.stretches.forEach((stretch, index) => {
    const outline = outlines.get(rows.family.branches[stretch.branch]!.log);
    for (const [first, last] of outline?.rewound ?? []) {
      const from = Math.max(stretch.first_step, lastAtMost(outline!.firsts, first - 1, outline!.total) + 1);
      const to = Math.min(stretch.first_step + stretch.step_count, lastAtMost(outline!.firsts, last, outline!.total) + 1);
      const start = rows.starts[index]! - stretch.first_step;
      if (from < to) found.push([start + from, start + to]);
    }
  });
  return found;
}

/** The outline of all rows, in the order of the picture: what the strip draws. */
export interface RowOutline {
  readonly count: number;
  readonly seqs: Int32Array;
  readonly times: Float64Array;
  readonly marks: Uint16Array;
  readonly branches: Uint16Array;
}

export function rowOutline(rows: Rows, outlines: ReadonlyMap<string, LogOutline>): RowOutline {
  const { stretches, branches } = rows.family;
  const made = {
    count: rows.count,
    seqs: new Int32Array(rows.count),
    times: new Float64Array(rows.count),
    marks: new Uint16Array(rows.count),
    branches: new Uint16Array(rows.count),
  };
  stretches.forEach((stretch: StretchShape, index) => {
    const start = rows.starts[index]!;
    const end = stretch.first_step + stretch.step_count;
    made.branches.fill(stretch.branch, start, start + stretch.step_count);
    const outline = outlines.get(branches[stretch.branch]!.log);
    if (!outline) return;
    made.seqs.set(outline.seqs.subarray(stretch.first_step, end), start);
    made.times.set(outline.times.subarray(stretch.first_step, end), start);
    made.marks.set(outline.marks.subarray(stretch.first_step, end), start);
  });
  return made;
}
