import { describe, expect, it } from "vitest";
import { expand } from "../src/file/pieces";

const digest = (number: number) => `d${number}`;

describe("pieces", () => {
  it("puts digests for their numbers", () => {
    expect(JSON.parse(expand('{"id":"~2f","list":["~0","x"]}', digest))).toEqual({ id: "d87", list: ["d0", "x"] });
  });

  it("leaves other texts as they were, also those with tildes and quotes", () => {
    for (const text of ["~", "~~", "~2f", "~2f ", 'a "~2f" b', '"~2f"', "\\", '\\"~2f"', "~a b"]) {
      const packed = JSON.stringify([text]).replace(/(?<!\\)"~/g, '"~~');
      expect(JSON.parse(expand(packed, digest))).toEqual([text]);
    }
  });
});
