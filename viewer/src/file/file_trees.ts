/** Folders and files of a page in one file, by their digests. */

import { Failure } from "../base/answer";
import type { EntryShape, FileDiff, FilesDiff, FileShape, FolderShape } from "../shapes";
import { lineDiff } from "./line_diff";
import type { Pieces } from "./pieces";

type Row = readonly [name: string, kind: string, size: number, isExecutable: number, key: string, target: string];

export interface Entry {
  readonly kind: string;
  readonly size: number;
  /** The digest of a folder, or the name of a content. */
  readonly key: string;
  readonly target: string;
}

export interface Content {
  readonly text?: string;
  readonly image?: string;
  readonly data?: string;
}

const LINE_MAX = 2000;
const NO_TREE = "none";
const FILES_MAX = 500;

function lost(what: string): Failure {
  return new Failure("NotInFile", `This file does not have ${what}.`, "The store has it: plait cat S:PATH", 404);
}

export function linesOf(text: string): string[] {
  const lines = text.split("\n");
  if (lines[lines.length - 1] === "") lines.pop();
  return lines;
}

export class FileTrees {
  constructor(readonly pieces: Pieces) {}

  async #entries(folder: string): Promise<readonly Row[]> {
    const folders = await this.pieces.get<Record<string, Row[]>>("folders/0");
    if (!folders) throw lost("the files: they were left out");
    const found = folders[folder];
    if (!found) throw lost("this folder");
    return found;
  }

  async #find(tree: string, path: string): Promise<Entry> {
    let here: Entry = { kind: "folder", size: 0, key: tree, target: "" };
    for (const name of path.split("/").filter(Boolean)) {
      const row = here.kind === "folder" ? (await this.#entries(here.key)).find((each) => each[0] === name) : undefined;
      if (!row) throw new Failure("NoSuchFile", `There is no ${path} at this place.`, "", 404);
      here = { kind: row[1], size: row[2], key: row[4], target: row[5] };
    }
    return here;
  }

  async #content(key: string): Promise<Content> {
    if (key === "") return { text: "" };
    const index = await this.pieces.get<Record<string, number>>("content-index/0");
    const piece = index?.[key];
    const found = piece === undefined ? null : await this.pieces.get<Record<string, Content>>(`contents/${piece}`);
    if (!found?.[key]) throw lost("the content of this file");
    return found[key];
  }

  async folder(tree: string, path: string): Promise<FolderShape> {
    const found = await this.#find(tree, path);
    const above = path ? `${path}/` : "";
    const entries = (await this.#entries(found.key)).map(
      ([name, kind, size, isExecutable, , target]): EntryShape => ({
        name,
        path: above + name,
        kind: kind === "folder" || kind === "link" ? kind : "file",
        size,
        is_executable: isExecutable === 1,
        target,
      }),
    );
    entries.sort((a, b) => Number(a.kind !== "folder") - Number(b.kind !== "folder") || (a.name < b.name ? -1 : 1));
    return { tree, path, entries };
  }

  async file(tree: string, path: string): Promise<{ entry: Entry; content: Content }> {
    const entry = await this.#find(tree, path);
    if (entry.kind === "link") return { entry, content: { text: entry.target } };
    if (entry.kind !== "file") return { entry, content: {} };
    return { entry, content: await this.#content(entry.key) };
  }

  shape(tree: string, path: string, entry: Entry, content: Content, first: number, count: number): FileShape {
    const blob = entry.kind === "file" && !entry.key.includes("+") && entry.key !== "" ? entry.key : null;
    const known = { tree, path, size: entry.size, first_line: first, lines: [], cut_lines: [], line_count: 0, blob };
    if (content.image) return { ...known, form: "image", media_type: content.image };
    if (content.text === undefined) return { ...known, form: "binary", media_type: "application/octet-stream" };
    const lines = linesOf(content.text);
    const wanted = lines.slice(first - 1, first - 1 + count);
    return {
      ...known,
      form: entry.kind === "link" ? "link" : "text",
      media_type: "text/plain",
      line_count: lines.length,
      lines: wanted.map((line) => (line.length > LINE_MAX ? `${line.slice(0, LINE_MAX)}…` : line)),
      cut_lines: wanted.flatMap((line, at) => (line.length > LINE_MAX ? [first + at] : [])),
    };
  }

  async diff(left: string, right: string, path: string): Promise<FilesDiff> {
    const changes: [string, Entry | null, Entry | null][] = [];
    await this.#compare(left === NO_TREE ? null : left, right === NO_TREE ? null : right, "", changes);
    const wanted = changes.filter(([each]) => !path || each === path || each.startsWith(`${path}/`));
    const files = await Promise.all(wanted.slice(0, FILES_MAX).map(([each, was, now]) => this.#fileDiff(each, was, now)));
    return { left: left === NO_TREE ? null : left, right: right === NO_TREE ? null : right, files };
  }

  async #compare(left: string | null, right: string | null, above: string, found: [string, Entry | null, Entry | null][]): Promise<void> {
    if (left === right) return;
    const old = new Map((left ? await this.#entries(left) : []).map((row) => [row[0], row]));
    const now = new Map((right ? await this.#entries(right) : []).map((row) => [row[0], row]));
    for (const name of [...new Set([...old.keys(), ...now.keys()])].sort()) {
      const [was, is] = [old.get(name), now.get(name)];
      if (was && is && was[4] === is[4] && was[1] === is[1] && was[3] === is[3] && was[5] === is[5]) continue;
      const [wasFolder, isFolder] = [was?.[1] === "folder", is?.[1] === "folder"];
      if (wasFolder || isFolder)
        await this.#compare(wasFolder ? was![4] : null, isFolder ? is![4] : null, `${above}${name}/`, found);
      const entry = (row: Row | undefined): Entry | null =>
        row && row[1] !== "folder" ? { kind: row[1], size: row[2], key: row[4], target: row[5] } : null;
      if ((was && !wasFolder) || (is && !isFolder)) found.push([above + name, entry(was), entry(is)]);
    }
  }

  async #fileDiff(path: string, was: Entry | null, now: Entry | null): Promise<FileDiff> {
    const status = was === null ? "added" : now === null ? "removed" : "changed";
    const [left, right] = await Promise.all([this.#text(was), this.#text(now)]);
    const known = { status, path, old_path: null } as const;
    if (left === null || right === null)
      return { ...known, added: 0, removed: 0, form: "binary", hunks: [], is_cut: false };
    return { ...known, form: was?.key === now?.key ? "mode" : "text", ...lineDiff(linesOf(left), linesOf(right)) };
  }

  /** The text on one side of a difference; null: it is none, or the file does not have it. */
  async #text(entry: Entry | null): Promise<string | null> {
    if (!entry) return "";
    if (entry.kind === "link") return entry.target;
    try {
      return (await this.#content(entry.key)).text ?? null;
    } catch {
      return null;
    }
  }
}
