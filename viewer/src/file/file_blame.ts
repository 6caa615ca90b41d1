/** Blame in a page in one file: the lines of a file, followed back to the events that brought them,
 * as `session/blame.py` does it.
 */

import { Failure } from "../base/answer";
import type { BlameShape, BranchShape, WriterShape } from "../shapes";
import { linesOf, type FileTrees } from "./file_trees";
import { matches } from "./line_diff";

/** An event that left another tree. `places` are of branches whose files came with it; `changed` is
 * null if any path may have changed.
 */
export type Version = readonly [
  log: number,
  seq: number,
  tree: string,
  kind: string,
  tool: string,
  actor: string,
  time: number,
  event: string,
  places: readonly (readonly [log: number, seq: number])[],
  changed: readonly string[] | null,
];

interface Lines {
  readonly key: string | null;
  readonly lines: readonly string[];
  readonly writers: readonly Version[];
}

const NOTHING: Lines = { key: null, lines: [], writers: [] };

export class FileBlame {
  #known = new Map<Version, Lines>();

  constructor(
    readonly trees: FileTrees,
    readonly branches: readonly BranchShape[],
    readonly versions: readonly Version[],
  ) {}

  /** Attribute the lines of a file as it was at a place. */
  async at(branch: BranchShape, seq: number, path: string, tree: string): Promise<BlameShape> {
    const last = this.#versionAt(this.branches.indexOf(branch), seq, path, tree);
    const found = last ? await this.#linesOf(last, path) : NOTHING;
    if (found.key === null) throw new Failure("NoSuchFile", `There is no ${path} with lines at this place.`, "", 404);
    const order = [...new Set(found.writers)];
    return { path, writers: order.map((each) => this.#writer(each, branch)), lines: found.writers.map((each) => order.indexOf(each)) };
  }

  #writer([log, seq, , kind, tool, actor, time, event]: Version, from: BranchShape): WriterShape {
    const { log: id, name, place } = this.branches[log]!;
    const isOwn = id === from.log || (from.parent !== null && seq <= from.place && place === 0);
    return { log: id, seq, event, kind, tool, actor, time, branch: isOwn ? "" : name };
  }

  /** The last version at or before a place of a lineage. The one that left `tree` wins: after a
   * rewind it is not the newest one.
   */
  #versionAt(log: number, seq: number, path: string, tree?: string): Version | null {
    for (let at = log, last = seq; ; ) {
      const branch = this.branches[at]!;
      const own = this.versions.filter(
        ([each, k, , , , , , , , changed]) => each === at && k <= last && (changed === null || changed.includes(path)),
      );
      const same = tree === undefined ? undefined : own.findLast((each) => each[2] === tree);
      const found = same ?? own[own.length - 1];
      if (found) return found;
      if (!branch.parent) return null;
      at = this.branches.findIndex((each) => each.log === branch.parent!.log);
      last = branch.place;
    }
  }

  async #linesOf(version: Version, path: string): Promise<Lines> {
    const open = [version];
    while (open.length) {
      const here = open[open.length - 1]!;
      const before = this.#before(here, path);
      const missing = before.filter((each) => !this.#known.has(each));
      if (missing.length) open.push(...missing);
      else {
        open.pop();
        if (!this.#known.has(here)) this.#known.set(here, await this.#attribute(here, path, before));
      }
    }
    return this.#known.get(version)!;
  }

  #before([log, seq, , , , , , , places]: Version, path: string): Version[] {
    const all = [[log, seq - 1] as const, ...places].map(([at, k]) => this.#versionAt(at, k, path));
    return [...new Set(all.filter((each) => each !== null))];
  }

  async #attribute(version: Version, path: string, before: readonly Version[]): Promise<Lines> {
    const file = await this.trees.file(version[2], path).catch(() => null);
    const parents = before.map((each) => this.#known.get(each)!);
    if (!file || file.entry.kind !== "file" || file.content.text === undefined) return NOTHING;
    const same = parents.find((each) => each.key === file.entry.key);
    if (same) return same;
    const lines = linesOf(file.content.text);
    const writers = new Array<Version | undefined>(lines.length).fill(undefined);
    for (const parent of parents)
      for (const { left, right } of matches(parent.lines, lines)) writers[right] ??= parent.writers[left];
    return { key: file.entry.key, lines, writers: writers.map((each) => each ?? version) };
  }
}
