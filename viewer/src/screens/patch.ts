/** A patch as text becomes files with lines: what the differences of trees look like. */

import type { DiffLine, FileDiff } from "../shapes";

const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/;

function pathOf(line: string): string {
  const name = line.slice(4).split("\t")[0]!.replace(/^"|"$/g, "");
  return name === "/dev/null" ? "" : name.replace(/^[ab]\//, "");
}

/** Read a unified patch. Lines that belong to no hunk are left out. */
export function parsePatch(patch: string): FileDiff[] {
  const files: FileDiff[] = [];
  let file: FileDiff | null = null;
  let hunk: DiffLine[] | null = null;
  let oldPath = "";
  let at: [number, number] = [0, 0];
  const lines = patch.split("\n");
  lines.forEach((line, index) => {
    if (line.startsWith("--- ") && lines[index + 1]?.startsWith("+++ ")) {
      oldPath = pathOf(line);
      hunk = null;
      return;
    }
    if (line.startsWith("+++ ") && lines[index - 1]?.startsWith("--- ")) {
      const path = pathOf(line);
      const status = !oldPath ? "added" : !path ? "removed" : path === oldPath ? "changed" : "renamed";
      file = { status, path: path || oldPath, old_path: oldPath || null, added: 0, removed: 0, form: "text", hunks: [], is_cut: false };
      files.push(file);
      return;
    }
    const head = HUNK.exec(line);
    if (head && file) {
      at = [Number(head[1]), Number(head[2])];
      hunk = [];
      file.hunks.push(hunk);
      return;
    }
    const mark = line[0];
    if (!file || !hunk || (mark !== " " && mark !== "+" && mark !== "-")) return;
    hunk.push([mark, mark === "+" ? 0 : at[0], mark === "-" ? 0 : at[1], line.slice(1)]);
    if (mark !== "+") at[0] += 1;
    if (mark !== "-") at[1] += 1;
    if (mark === "+") file.added += 1;
    if (mark === "-") file.removed += 1;
  });
  return files;
}
