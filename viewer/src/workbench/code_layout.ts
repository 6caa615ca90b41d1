/** The rows of a file: its lines, and between them the lines that a step removed. */

import { lastAtMost } from "../base/rows";
import type { DiffLine, FileDiff } from "../shapes";

export interface CodeRow {
  readonly kind: "same" | "added" | "removed";
  /** Of the line in the file; of a removed one in the file before. */
  readonly number: number;
  /** Of a removed line. */
  readonly text?: string;
}

interface Removal {
  /** The line of the file that the removed ones stood before. */
  readonly before: number;
  readonly lines: readonly DiffLine[];
}

function removalsOf(changes: FileDiff | undefined): { removals: Removal[]; added: Set<number> } {
  const removals: Removal[] = [];
  const added = new Set<number>();
  for (const hunk of changes?.hunks ?? []) {
    let waiting: DiffLine[] = [];
    let next = 1;
    const put = (before: number) => {
      if (waiting.length) removals.push({ before, lines: waiting });
      waiting = [];
    };
    for (const line of hunk) {
      if (line[0] === "-") waiting.push(line);
      else {
        if (line[0] === "+") added.add(line[2]);
        put(line[2]);
        next = line[2] + 1;
      }
    }
    put(next);
  }
  return { removals: removals.sort((a, b) => a.before - b.before), added };
}

/** A layout that needs no texts, so that a file of any length has one. */
export class CodeLayout {
  readonly count: number;
  #removals: readonly Removal[];
  /** The row at which each removal begins. */
  #starts: number[] = [];
  #added: ReadonlySet<number>;

  constructor(
    readonly lineCount: number,
    changes: FileDiff | undefined,
  ) {
    const { removals, added } = removalsOf(changes);
    let extra = 0;
    for (const removal of removals) {
      this.#starts.push(removal.before - 1 + extra);
      extra += removal.lines.length;
    }
    this.#removals = removals;
    this.#added = added;
    this.count = lineCount + extra;
  }

  rowAt(index: number): CodeRow {
    const at = lastAtMost(this.#starts, index);
    if (at < 0) return this.#line(index + 1);
    const removal = this.#removals[at]!;
    const into = index - this.#starts[at]!;
    const removed = removal.lines[into];
    if (removed) return { kind: "removed", number: removed[1], text: removed[3] };
    return this.#line(removal.before + into - removal.lines.length);
  }

  /** Return the row of a line of the file. */
  indexOf(line: number): number {
    let extra = 0;
    for (const removal of this.#removals) {
      if (removal.before > line) break;
      extra += removal.lines.length;
    }
    return line >= 1 && line <= this.lineCount ? line - 1 + extra : -1;
  }

  /** The first row that differs; -1: none does. */
  get firstChange(): number {
    const added = this.#added.size ? this.indexOf(Math.min(...this.#added)) : Infinity;
    const first = Math.min(added, this.#starts[0] ?? Infinity);
    return Number.isFinite(first) ? first : -1;
  }

  #line(number: number): CodeRow {
    return { kind: this.#added.has(number) ? "added" : "same", number };
  }
}
