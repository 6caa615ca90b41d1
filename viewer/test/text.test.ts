import { describe, expect, it } from "vitest";
import { foldLines, plainText, textPieces } from "../src/base/text";

const shown = (text: string, ansi = false) => textPieces(text, ansi).map((piece) => (piece.mark ? `<${piece.mark}>` : piece.text)).join("");

describe("texts of others", () => {
  it("stay as they are if nothing hides in them", () => {
    for (const text of ["", "plain", "line\nline\ttab", "<script>alert(1)</script>", "naïve café", "日本語", "שלום", "👩‍👩‍👧 👍🏽"])
      expect(shown(text)).toBe(text);
  });

  it("show characters that turn text around or are not seen", () => {
    expect(shown("a\u202eb")).toBe("a<RLO>b");
    expect(shown("x\u200by\ufeff")).toBe("x<ZWSP>y<BOM>");
    expect(shown("\u2066if admin\u2069")).toBe("<LRI>if admin<PDI>");
    expect(shown("a\u0000\u0008")).toBe("a<NUL><BS>");
    expect(shown("a\u{e0041}")).toBe("a<U+E0041>");
    expect(shown("\ud800x")).toBe("<U+D800>x");
    expect(shown("a\u200db")).toBe("a<ZWJ>b");
    expect(shown("\u3164")).toBe("<U+3164>");
  });

  it("fold heaps of marks on one letter", () => {
    const text = `z${"\u0301".repeat(60)}z`;
    expect(shown(text)).toBe("z<60 marks>z");
  });

  it("take carriage returns before line ends away, and show others", () => {
    expect(shown("a\r\nb")).toBe("a\nb");
    expect(shown("safe\rrm -rf")).toBe("safe<CR>rm -rf");
  });

  it("turn the colours of a terminal into classes, and drop its other sequences", () => {
    expect(textPieces("\u001b[1;31mred\u001b[0m plain", true)).toEqual([{ text: "red", style: "ansi-31 ansi-bold" }, { text: " plain" }]);
    expect(shown("\u001b]8;;http://evil\u0007click\u001b]8;;\u0007", true)).toBe("click");
    expect(shown("\u001b[2J\u001b[10;10Hhid\u001b[?25l", true)).toBe("hid");
    expect(textPieces("\u001b[38;5;196;4mx", true)).toEqual([{ text: "x", style: "ansi-underline" }]);
    expect(textPieces("\u001b[38;2;1;2;31mx", true)).toEqual([{ text: "x" }]);
    expect(shown("\u001b[31mx")).toBe("<ESC>[31mx");
  });

  it("never lose or add a visible character", () => {
    let seed = 11;
    const next = () => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647;
    for (let round = 0; round < 200; round += 1) {
      const text = Array.from({ length: 40 }, () => String.fromCodePoint(32 + Math.floor(next() * 90))).join("");
      expect(shown(text, true)).toBe(text);
    }
  });

  it("are one line in a title", () => {
    expect(plainText("a\n\u202eb   c", 10)).toBe("a [RLO]b c");
    expect(plainText("x".repeat(500), 10)).toHaveLength(11);
  });

  it("fold lines of any length", () => {
    const { text, hidden } = foldLines(`short\n${"x".repeat(10_000_000)}`, 2000);
    expect(text.length).toBeLessThan(2100);
    expect(hidden).toBe(9_998_000);
  });
});
