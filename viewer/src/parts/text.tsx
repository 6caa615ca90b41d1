/** Texts of others. They reach the page as text nodes alone. */

import { useMemo, useState } from "preact/hooks";
import { foldLines, textPieces } from "../base/text";
import { numberText } from "../base/format";

const LINE_MAX = 2000;

export function Pieces({ text, ansi = false }: { text: string; ansi?: boolean }) {
  const pieces = useMemo(() => textPieces(text, ansi), [text, ansi]);
  return (
    <>
      {pieces.map((piece, index) =>
        piece.mark ? (
          <span key={index} class="text-mark" title="a character that is not seen, or turns text around">
            {piece.mark}
          </span>
        ) : piece.style ? (
          <span key={index} class={piece.style}>
            {piece.text}
          </span>
        ) : (
          piece.text
        ),
      )}
    </>
  );
}

/** One line, cut by its column. */
export function Line({ text, class: extra = "" }: { text: string; class?: string }) {
  const short = text.length > 400 ? `${text.slice(0, 400)}…` : text;
  return (
    <bdi class={`cut ${extra}`}>
      <Pieces text={short.replace(/\s*\n\s*/g, " ")} />
    </bdi>
  );
}

interface TextProps {
  readonly text: string;
  readonly isCode?: boolean;
  readonly ansi?: boolean;
  /** Lines that are shown before "show all". The last ones count in an output: `keep` says which. */
  readonly lines?: number;
  readonly keep?: "first" | "last";
}

/** A text of any length: long lines and long texts are folded, and opened on demand. */
export function Text({ text, isCode = false, ansi = false, lines = 60, keep = "first" }: TextProps) {
  const [shown, setShown] = useState(lines);
  const [width, setWidth] = useState(LINE_MAX);
  const { part, hidden, cut } = useMemo(() => {
    const all = text.split("\n");
    const most = all.length > shown ? (keep === "first" ? all.slice(0, shown) : all.slice(-shown)) : all;
    const folded = foldLines(most.join("\n"), width);
    return { part: folded.text, hidden: all.length - most.length, cut: folded.hidden };
  }, [text, shown, width, keep]);
  const more = hidden > 0 && (
    <button type="button" class="link text-more" onClick={() => setShown(shown + 2000)}>
      {`${numberText(hidden)} ${keep === "first" ? "more" : "earlier"} ${hidden === 1 ? "line" : "lines"}`}
    </button>
  );
  return (
    <div class={`text ${isCode ? "code" : ""}`} dir="auto">
      {keep === "last" && more}
      <Pieces text={part} ansi={ansi} />
      {keep === "first" && more}
      {cut > 0 && (
        <button type="button" class="link text-more" onClick={() => setWidth(width * 10)}>
          {`${numberText(cut)} more characters in long lines`}
        </button>
      )}
    </div>
  );
}
