/** Texts of others, made harmless: pieces of plain text, marks, and styles of a terminal. */

export interface Piece {
  readonly text: string;
  /** The name of a character that would not be seen, or would turn the text around. */
  readonly mark?: string;
  /** Classes for the colours of a terminal. */
  readonly style?: string;
}

const NAMES: Readonly<Record<number, string>> = {
  0x00: "NUL", 0x07: "BEL", 0x08: "BS", 0x0b: "VT", 0x0c: "FF", 0x0d: "CR", 0x1b: "ESC", 0x7f: "DEL",
  0x85: "NEL", 0xad: "SHY", 0x61c: "ALM", 0x200b: "ZWSP", 0x200c: "ZWNJ", 0x200d: "ZWJ",
  0x200e: "LRM", 0x200f: "RLM", 0x2028: "LS", 0x2029: "PS", 0x202a: "LRE", 0x202b: "RLE",
  0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO", 0x2060: "WJ", 0x2066: "LRI", 0x2067: "RLI",
  0x2068: "FSI", 0x2069: "PDI", 0xfeff: "BOM", 0xfffd: "\ufffd",
};

// Controls but tab and newline, bidi controls, characters without a width, fillers, tags, private
// selectors, halves of a pair.
const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|[\u{1bca0}-\u{1bca3}]|[\u{1d173}-\u{1d17a}]|\p{Surrogate}|\p{M}{5,}/u;
const UNSEEN_ALL = new RegExp(UNSEEN.source, "gu");
const PICTURE = /\p{Extended_Pictographic}\ufe0f?[\u{1f3fb}-\u{1f3ff}]?$/u;
const PICTURE_NEXT = /^\p{Extended_Pictographic}/u;

function nameOf(found: string): string {
  const code = found.codePointAt(0)!;
  if (/^\p{M}{5,}$/u.test(found)) return `${[...found].length} marks`;
  return NAMES[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

function addMarked(pieces: Piece[], text: string, style: string): void {
  const plain = (part: string) => {
    if (part) pieces.push(style ? { text: part, style } : { text: part });
  };
  if (!UNSEEN.test(text)) return plain(text);
  let from = 0;
  for (const match of text.matchAll(UNSEEN_ALL)) {
    const at = match.index;
    // A joiner between two pictures is how one picture is written.
    if (match[0] === "\u200d" && PICTURE.test(text.slice(Math.max(0, at - 8), at)) && PICTURE_NEXT.test(text.slice(at + 1, at + 3))) continue;
    if (match[0] === "\r" && text[at + 1] === "\n") {
      plain(text.slice(from, at));
      from = at + 1;
      continue;
    }
    plain(text.slice(from, at));
    pieces.push({ text: "", mark: nameOf(match[0]) });
    from = at + match[0].length;
  }
  plain(text.slice(from));
}

// CSI and OSC sequences, and other escapes of two characters.
const ESCAPE = /\u001b(?:\[([0-?]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\|$)|[PX^_][^\u001b]*(?:\u001b\\|$)|[ -/]*[0-~])/g;

interface Pen {
  color: string;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
}

const NO_STYLE: Readonly<Pen> = { color: "", bold: false, dim: false, italic: false, underline: false };

function applyCodes(pen: Pen, codes: string): void {
  const numbers = codes.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
  for (let i = 0; i < numbers.length; i += 1) {
    const code = numbers[i]!;
    if (code === 0) Object.assign(pen, NO_STYLE);
    else if (code === 1) pen.bold = true;
    else if (code === 2) pen.dim = true;
    else if (code === 3) pen.italic = true;
    else if (code === 4) pen.underline = true;
    else if (code === 22) pen.bold = pen.dim = false;
    else if (code === 23) pen.italic = false;
    else if (code === 24) pen.underline = false;
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) pen.color = `ansi-${code}`;
    else if (code === 39) pen.color = "";
    else if (code === 38 || code === 48) i += numbers[i + 1] === 5 ? 2 : numbers[i + 1] === 2 ? 4 : 0;
  }
}

function styleOf(pen: Pen): string {
  const names = [pen.color];
  if (pen.bold) names.push("ansi-bold");
  if (pen.dim) names.push("ansi-dim");
  if (pen.italic) names.push("ansi-italic");
  if (pen.underline) names.push("ansi-underline");
  return names.filter(Boolean).join(" ");
}

/** Split a text into pieces. With `ansi` the colours of a terminal become classes, and its other
 * sequences are left out; without it an escape is a mark like other controls.
 */
export function textPieces(text: string, ansi = false): Piece[] {
  const pieces: Piece[] = [];
  if (!ansi || !text.includes("\u001b")) {
    addMarked(pieces, text, "");
    return pieces;
  }
  const pen: Pen = { ...NO_STYLE };
  let from = 0;
  for (const match of text.matchAll(ESCAPE)) {
    addMarked(pieces, text.slice(from, match.index), styleOf(pen));
    if (match[2] === "m") applyCodes(pen, match[1] ?? "");
    from = match.index + match[0].length;
  }
  addMarked(pieces, text.slice(from), styleOf(pen));
  return pieces;
}

/** Return a text as one line for an attribute or a title: marks stand in brackets. */
export function plainText(text: string, limit = 200): string {
  const cut = text.length > limit ? `${text.slice(0, limit)}…` : text;
  return textPieces(cut)
    .map((piece) => (piece.mark ? `[${piece.mark}]` : piece.text))
    .join("")
    .replace(/\s+/g, " ");
}

/** Shorten each line that is longer than `limit`; return the text and the number of characters
 * that are not shown.
 */
export function foldLines(text: string, limit: number): { text: string; hidden: number } {
  if (text.length <= limit) return { text, hidden: 0 };
  let hidden = 0;
  const lines = text.split("\n").map((line) => {
    if (line.length <= limit) return line;
    hidden += line.length - limit;
    return `${line.slice(0, limit)}…`;
  });
  return { text: lines.join("\n"), hidden };
}
