/** Differences of files, line by line. */

import { useState } from "preact/hooks";
import { useAnswer } from "../base/answer";
import { numberText } from "../base/format";
import { usePage } from "../base/page";
import { hrefOf, sessionRoute } from "../base/router";
import { Shows } from "../parts/states";
import { Line, Pieces } from "../parts/text";
import type { DiffLine, FileDiff, StepDetail } from "../shapes";

const LINES_AT_FIRST = 60;

export function DiffOfStep({ detail }: { detail: StepDetail }) {
  const { source } = usePage();
  const { step } = detail;
  const shown = useAnswer(source.diff(detail.tree_before ?? "none", detail.tree_after ?? "none"));
  return (
    <Shows shown={shown}>
      {(diff) => (
        <>
          {diff.files.slice(0, 20).map((file) => (
            <FileDiffView key={file.path} file={file} place={{ log: step.log, seq: step.seq }} />
          ))}
          {diff.files.length > 20 && <p class="faint">{`and ${diff.files.length - 20} more files`}</p>}
        </>
      )}
    </Shows>
  );
}

interface FileDiffProps {
  readonly file: FileDiff;
  /** The place whose side is the new one: a click on a line goes to the file there. */
  readonly place: { readonly log: string; readonly seq: number };
}

export function FileDiffView({ file, place }: FileDiffProps) {
  const [most, setMost] = useState(LINES_AT_FIRST);
  const target = sessionRoute(place.log, place.seq, { tab: "files", path: file.path });
  const total = file.hunks.reduce((sum, hunk) => sum + hunk.length, 0);
  let left = most;
  return (
    <figure class="diff">
      <figcaption class="diff-head">
        <a class="mono" href={hrefOf(target)}>
          {file.old_path && file.old_path !== file.path && (
            <>
              <Line text={file.old_path} class="faint" /> {"→ "}
            </>
          )}
          <Line text={file.path} />
        </a>
        {file.status !== "changed" && <span class="faint">{file.status}</span>}
        <span class="state-counts">
          {file.added > 0 && <span class="good">{`+${numberText(file.added)}`}</span>}{" "}
          {file.removed > 0 && <span class="bad">{`−${numberText(file.removed)}`}</span>}
        </span>
      </figcaption>
      {file.form === "binary" && <p class="faint">a binary file: only its bytes differ</p>}
      {file.form === "mode" && <p class="faint">only its mode differs</p>}
      <div class="diff-lines" role="table" aria-label={`Changes of ${file.path}`}>
        {file.hunks.map((hunk, index) => {
          const lines = hunk.slice(0, Math.max(0, left));
          left -= hunk.length;
          if (lines.length === 0) return null;
          return (
            <div key={index} role="rowgroup" class="diff-hunk">
              {lines.map((line, at) => (
                <DiffRow key={at} line={line} href={line[2] ? hrefOf({ ...target, line: line[2] }) : undefined} />
              ))}
            </div>
          );
        })}
      </div>
      {total > most && (
        <button type="button" class="link" onClick={() => setMost(most + 500)}>
          {`${numberText(total - most)} more lines`}
        </button>
      )}
      {file.is_cut && total <= most && <p class="faint">more lines differ than are shown</p>}
    </figure>
  );
}

const LINE_CLASSES: Readonly<Record<string, string>> = { "+": "is-added", "-": "is-removed", " ": "" };

export function DiffRow({ line, href }: { line: DiffLine; href?: string | undefined }) {
  const [mark, old, next, text] = line;
  const number = mark === "-" ? old : next;
  return (
    <div role="row" class={`diff-line ${LINE_CLASSES[mark] ?? ""}`}>
      <span role="cell" class="diff-number">
        {href ? <a href={href}>{number}</a> : number || ""}
      </span>
      <span role="cell" class="diff-mark">
        {mark === "-" ? "−" : mark}
      </span>
      <span role="cell" class="diff-text">
        <Pieces text={text.length > 1000 ? `${text.slice(0, 1000)}…` : text} />
      </span>
    </div>
  );
}
