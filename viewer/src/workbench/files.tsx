/** The tab Files: the tree at this place, a file with who wrote which line, and differences. */

import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useAnswer, type Shown } from "../base/answer";
import { bytesText, countText, numberText } from "../base/format";
import { usePage } from "../base/page";
import { go, hrefOf, route, sessionRoute, type SessionRoute } from "../base/router";
import { Icon } from "../parts/icons";
import { memo } from "../parts/memo";
import { Empty, Shows } from "../parts/states";
import { Line, Pieces } from "../parts/text";
import { Window } from "../parts/window";
import type { Sight } from "../base/windowing";
import type { BlameShape, EntryShape, FileDiff, FileShape, WriterShape } from "../shapes";
import { CodeLayout, type CodeRow } from "./code_layout";
import { FileDiffView } from "./diff";
import { useFirstTree, useTrack } from "./state";
import { laneIndex } from "./strip_draw";
import { TraceList } from "./why";

const LINES_ASKED = 2000;
const CODE_ROW = 20;

export function FilesPanel() {
  const { model, source } = usePage();
  const now = route.value as SessionRoute;
  const state = useTrack();
  const tree = state.value?.tree ?? null;
  const before = useTreeBefore();
  const first = useFirstTree();
  const other = useBranchTree(now.against);
  const since = useAnswer(!now.path && first && tree && first !== tree ? source.diff(first, tree) : null);
  // Without a path the file that matters most is shown: the one that the step changed, else the
  // first that changed at all.
  const path = now.path || model.step.value?.files[0] || since.value?.files.find((file) => file.status !== "removed")?.path || "";
  if (state.value && !tree)
    return (
      <Empty>
        <p class="state-head">This session has no files at this place.</p>
        <p>
          Files begin where it is placed in a sandbox: <code>plait to {model.branch.value?.short ?? "S"} overlay</code>
        </p>
      </Empty>
    );
  if (!tree) return <Shows shown={state}>{() => null}</Shows>;
  const against = now.against === "before" ? before : now.against === "start" ? first : other;
  return (
    <div class="files">
      <FilesHead now={now} />
      <div class="files-body">
        <TreeView tree={tree} path={path} changed={before} />
        {now.against ? (
          <Differences left={against} right={tree} path={path} />
        ) : path ? (
          <FileView tree={tree} path={path} before={before} line={now.line} />
        ) : (
          <Empty>
            <p>Choose a file. A click on one of its lines tells which call wrote it, and why.</p>
          </Empty>
        )}
      </div>
    </div>
  );
}

/** The tree before the step at the cursor; undefined: not known yet. */
function useTreeBefore(): string | null | undefined {
  const { model, source } = usePage();
  const step = model.step.value;
  const place = model.cursor.value;
  const detail = useAnswer(place ? source.detail(place.log, step?.seq ?? place.seq) : null, model.isGliding.value ? 70 : 0);
  if (!detail.value || detail.isStale) return undefined;
  return detail.value.tree_after ? detail.value.tree_before : undefined;
}

function useBranchTree(name: string): string | null | undefined {
  const { source } = usePage();
  const isBranch = name !== "" && name !== "before" && name !== "start";
  const shown = useAnswer(isBranch ? source.session(name) : null);
  return shown.value?.tree;
}

function FilesHead({ now }: { now: SessionRoute }) {
  const { model } = usePage();
  const others = model.family.value!.branches.filter((branch) => branch.log !== model.cursor.value?.log);
  const isBranch = now.against !== "" && now.against !== "before" && now.against !== "start";
  const choices: [string, string][] = [["", "File"], ["before", "Since the step before"], ["start", "Since the beginning"]];
  return (
    <div class="files-head">
      <div class="choice" role="group" aria-label="What is shown">
        {choices.map(([name, words]) => (
          <button key={name} type="button" aria-pressed={now.against === name} onClick={() => go({ ...now, against: name, line: null })}>
            {words}
          </button>
        ))}
      </div>
      {others.length > 0 && (
        <select
          class="input files-branch"
          aria-label="Compare with the files of another branch"
          value={isBranch ? now.against : ""}
          onChange={(event) => go({ ...now, against: event.currentTarget.value, line: null })}
        >
          <option value="">Against a branch…</option>
          {others.slice(0, 200).map((branch) => (
            <option key={branch.log} value={branch.short}>{branch.name}</option>
          ))}
        </select>
      )}
    </div>
  );
}

// ── the tree ─────────────────────────────────────────────────────────────────────────────────

const openFolders = signal<ReadonlySet<string>>(new Set());

function TreeView({ tree, path, changed }: { tree: string; path: string; changed: string | null | undefined }) {
  const { source } = usePage();
  const diff = useAnswer(changed && changed !== tree ? source.diff(changed, tree) : null);
  const paths = useMemo(() => new Set(diff.value && changed !== tree ? diff.value.files.map((file) => file.path) : []), [diff.value, changed, tree]);
  useEffect(() => {
    const parents = path.split("/").slice(0, -1).map((_, index, all) => all.slice(0, index + 1).join("/"));
    if (parents.some((each) => !openFolders.peek().has(each))) openFolders.value = new Set([...openFolders.peek(), ...parents]);
  }, [path]);
  return (
    <nav class="tree scroll" aria-label="Files at this place">
      <Folder tree={tree} folder="" depth={0} path={path} changed={paths} />
    </nav>
  );
}

interface FolderProps {
  readonly tree: string;
  readonly folder: string;
  readonly depth: number;
  readonly path: string;
  readonly changed: ReadonlySet<string>;
}

const ENTRIES_AT_FIRST = 200;

const Folder: FunctionComponent<FolderProps> = memo(function Folder({ tree, folder, depth, path, changed }: FolderProps) {
  const { source, model } = usePage();
  const [most, setMost] = useState(ENTRIES_AT_FIRST);
  const shown = useAnswer(source.folder(tree, folder), model.isGliding.value ? 70 : 0);
  const now = route.value as SessionRoute;
  const toggle = (entry: EntryShape) => {
    const next = new Set(openFolders.value);
    if (!next.delete(entry.path)) next.add(entry.path);
    openFolders.value = next;
  };
  return (
    <Shows shown={{ ...shown, isStale: shown.isStale && depth === 0 }}>
      {(answer) => (
        <ul>
          {answer.entries.slice(0, most).map((entry) => (
            <li key={entry.path}>
              {entry.kind === "folder" ? (
                <button
                  type="button"
                  class="tree-row"
                  style={{ paddingLeft: `${12 + depth * 14}px` }}
                  aria-expanded={openFolders.value.has(entry.path)}
                  onClick={() => toggle(entry)}
                >
                  <Icon name={openFolders.value.has(entry.path) ? "down" : "right"} />
                  <Line text={entry.name} />
                </button>
              ) : (
                <a
                  class={`tree-row ${entry.kind === "link" ? "" : "is-file"} ${changed.has(entry.path) ? "is-changed" : ""}`}
                  style={{ paddingLeft: `${12 + depth * 14}px` }}
                  aria-current={entry.path === path ? "true" : undefined}
                  href={hrefOf({ ...now, tab: "files", path: entry.path, line: null })}
                >
                  {entry.kind === "link" && <Icon name="link" />}
                  <Line text={entry.name} />
                  {changed.has(entry.path) && <span class="tree-mark" title="changed by this step">±</span>}
                </a>
              )}
              {entry.kind === "folder" && openFolders.value.has(entry.path) && depth < 60 && (
                <Folder tree={tree} folder={entry.path} depth={depth + 1} path={path} changed={changed} />
              )}
            </li>
          ))}
          {answer.entries.length > most && (
            <li>
              <button type="button" class="link tree-row" onClick={() => setMost(most + 1000)}>
                {`${numberText(answer.entries.length - most)} more`}
              </button>
            </li>
          )}
          {answer.entries.length === 0 && depth === 0 && <li class="faint tree-row">no files</li>}
        </ul>
      )}
    </Shows>
  );
});

// ── one file ─────────────────────────────────────────────────────────────────────────────────

interface FileProps {
  readonly tree: string;
  readonly path: string;
  readonly before: string | null | undefined;
  readonly line: number | null;
}

function FileView({ tree, path, before, line }: FileProps) {
  const { source, model } = usePage();
  const delay = model.isGliding.value ? 70 : 0;
  const file = useAnswer(source.file(tree, path, 1, LINES_ASKED), delay);
  const isText = file.value?.form === "text";
  const blame = useAnswer(isText && model.cursor.value ? source.blame(model.revision(), path) : null, delay);
  const diff = useAnswer(isText && before && before !== tree ? source.diff(before, tree, path) : null, delay);
  const changes = before && before !== tree ? diff.value?.files.find((each) => each.path === path) : undefined;
  if (file.error?.status === 404)
    return (
      <Empty>
        <p class="state-head"><Pieces text={path} /> is not there at this place.</p>
        <p>It is written later, or was removed. The strip moves to where it is.</p>
      </Empty>
    );
  return (
    <div class="file">
      <Shows shown={file}>
        {(value) =>
          value.form === "text" ? (
            <TextFile file={value} blame={blame.value} changes={changes} line={line} />
          ) : (
            <OtherFile file={value} />
          )
        }
      </Shows>
    </div>
  );
}

function OtherFile({ file }: { file: FileShape }) {
  const { source } = usePage();
  return (
    <div class="state">
      {file.form === "image" && file.blob && <img class="part-image" src={source.blobAddress(file.blob)} alt={`the image ${file.path}`} />}
      <p class="state-head"><Pieces text={file.path} /></p>
      <p>{`${file.form === "link" ? "A link" : file.form === "image" ? "An image" : "A binary file"}, ${bytesText(file.size)}${file.media_type ? `, ${file.media_type}` : ""}.`}</p>
      {file.blob && <p><a class="link" href={source.blobAddress(file.blob)} download>Download</a></p>}
    </div>
  );
}

interface TextFileProps {
  readonly file: FileShape;
  readonly blame: BlameShape | undefined;
  readonly changes: FileDiff | undefined;
  readonly line: number | null;
}

const TextFile = memo(function TextFile({ file, blame, changes, line }: TextFileProps) {
  const { model } = usePage();
  const layout = useMemo(() => new CodeLayout(file.line_count, changes), [file, changes]);
  const now = route.value as SessionRoute;
  const { textOf, need } = useLines(file);
  const onSight = useCallback(
    (sight: Sight) => {
      for (let index = sight.first; index < sight.end; index += 1) {
        const row = layout.rowAt(index);
        if (row.kind !== "removed") need(row.number);
      }
    },
    [layout, need],
  );
  const goal = line !== null ? layout.indexOf(line) : layout.firstChange;
  const writerOf = (row: CodeRow): WriterShape | undefined => (row.kind === "removed" ? undefined : blame?.writers[blame.lines[row.number - 1] ?? -1]);
  const digits = String(file.line_count).length;
  return (
    <>
      <div class="file-head">
        <span class="mono cut"><Line text={file.path} /></span>
        <span class="faint">{`${countText(file.line_count, "line")}, ${bytesText(file.size)}`}</span>
        {changes && (
          <span class="state-counts">
            {changes.added > 0 && <span class="good">{`+${changes.added}`}</span>} {changes.removed > 0 && <span class="bad">{`−${changes.removed}`}</span>}
            <span class="faint"> by this step</span>
          </span>
        )}
      </div>
      <Window
        class="code"
        count={layout.count}
        row={CODE_ROW}
        onSight={onSight}
        goal={goal}
        goalKey={`${file.tree}${file.path}`}
        margin={4}
        attributes={{
          tabIndex: 0,
          role: "group",
          "aria-label": `${file.path}, with the call that wrote each line. The arrows choose a line`,
          onKeyDown: (event: KeyboardEvent) => {
            const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
            if (!by) return;
            event.preventDefault();
            const next = line === null ? 1 : line + by;
            if (next >= 1 && next <= file.line_count) go({ ...now, path: file.path, line: next }, line === null ? "push" : "replace");
          },
        }}
        draw={(index) => {
          const row = layout.rowAt(index);
          const writer = writerOf(row);
          const previous = index > 0 ? writerOf(layout.rowAt(index - 1)) : undefined;
          const text = row.text ?? textOf(row.number) ?? "";
          const isChosen = row.kind !== "removed" && row.number === line;
          return (
            <div key={index} class={`code-row is-${row.kind} ${isChosen ? "is-here" : ""}`}>
              <Writer writer={writer} isRepeated={writer !== undefined && writer === previous} />
              <a
                class="code-number"
                style={{ minWidth: `${digits + 2}ch` }}
                tabIndex={-1}
                href={hrefOf({ ...now, path: file.path, line: row.kind === "removed" ? null : row.number })}
              >
                {row.kind === "removed" ? "−" : row.number}
              </a>
              <span
                class="code-text"
                onClick={() => {
                  if (row.kind !== "removed" && !getSelection()?.toString()) go({ ...now, path: file.path, line: row.number });
                }}
              >
                <Pieces text={text.length > 1000 ? `${text.slice(0, 1000)}…` : text} />
              </span>
            </div>
          );
        }}
      />
      {line !== null && model.cursor.value && <LineStory path={file.path} line={line} writer={blame?.writers[blame.lines[line - 1] ?? -1]} />}
    </>
  );
});

/** The lines of a file, asked for by pages as they come into sight. */
function useLines(file: FileShape) {
  const { source } = usePage();
  const [, redraw] = useState(0);
  const pages = useRef(new Map<number, readonly string[] | null>());
  const known = useRef(file);
  if (known.current !== file) {
    known.current = file;
    pages.current = new Map();
  }
  const need = useCallback(
    (line: number) => {
      const page = Math.floor((line - 1) / LINES_ASKED);
      if (page === 0 || pages.current.has(page)) return;
      const mine = pages.current.set(page, null);
      source.file(file.tree, file.path, page * LINES_ASKED + 1, LINES_ASKED).get().then(
        (found) => {
          mine.set(page, found.lines);
          redraw((n) => n + 1);
        },
        () => mine.delete(page),
      );
    },
    [file, source],
  );
  const textOf = (line: number): string | undefined => {
    const page = Math.floor((line - 1) / LINES_ASKED);
    const lines = page === 0 ? file.lines : pages.current.get(page);
    return lines?.[(line - 1) % LINES_ASKED];
  };
  return { textOf, need };
}

function Writer({ writer, isRepeated }: { writer: WriterShape | undefined; isRepeated: boolean }) {
  const { model } = usePage();
  if (!writer) return <span class="code-writer" />;
  const branch = model.branchOf(writer.log);
  return (
    <a
      class={`code-writer ${isRepeated ? "is-repeated" : ""}`}
      tabIndex={isRepeated ? -1 : 0}
      style={{ color: `var(--lane-${laneIndex(branch?.color ?? 0)})` }}
      title={`${writer.tool || (writer.kind === "PlacementChanged" ? "placed" : writer.kind)}, ${writer.actor}`}
      href={hrefOf(sessionRoute(writer.log, writer.seq))}
    >
      <Line text={`${writer.tool || (writer.kind === "PlacementChanged" ? "placed" : writer.kind)} ${model.placeName(writer)}`} />
    </a>
  );
}

/** The story of one line: the call that wrote it, and why, below the file. */
function LineStory({ path, line, writer }: { path: string; line: number; writer: WriterShape | undefined }) {
  const { model, source } = usePage();
  const now = route.value as SessionRoute;
  const shown: Shown<Awaited<ReturnType<ReturnType<typeof source.why>["get"]>>> = useAnswer(source.why(model.revision(), `${path}:${line}`), model.isGliding.value ? 90 : 0);
  return (
    <section class="line-story" aria-label={`Why line ${line} is there`}>
      <header class="line-story-head">
        <h2 class="label">{`Why line ${line} is there`}</h2>
        {writer && (
          <a class="link" href={hrefOf(sessionRoute(writer.log, writer.seq))}>
            {`Go to ${writer.tool || "the event"} ${model.placeName(writer)}`}
          </a>
        )}
        <button type="button" class="button plain square" aria-label="Close" onClick={() => go({ ...now, line: null })}>
          <Icon name="close" />
        </button>
      </header>
      <div class="scroll line-story-body" tabIndex={0}>
        <Shows shown={shown}>{(trace) => <TraceList trace={trace} />}</Shows>
      </div>
    </section>
  );
}

// ── differences ──────────────────────────────────────────────────────────────────────────────

function Differences({ left, right, path }: { left: string | null | undefined; right: string; path: string }) {
  const { source, model } = usePage();
  const shown = useAnswer(left === undefined ? null : source.diff(left ?? "none", right), model.isGliding.value ? 90 : 0);
  if (left === undefined)
    return (
      <Empty>
        <p class="state-head">This step changed no file.</p>
        <p>
          <kbd class="key">Shift</kbd> <kbd class="key">→</kbd> goes to the next one that did.
        </p>
      </Empty>
    );
  return (
    <div class="differences scroll" tabIndex={0}>
      <Shows shown={shown}>
        {(diff) => {
          const first = diff.files.filter((file) => file.path === path);
          const rest = diff.files.filter((file) => file.path !== path);
          if (diff.files.length === 0) return <Empty>The files are the same.</Empty>;
          return [...first, ...rest].slice(0, 50).map((file) => <FileDiffView key={file.path} file={file} place={model.cursor.value!} />);
        }}
      </Shows>
    </div>
  );
}
