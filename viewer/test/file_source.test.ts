/** The answers of a page in one file against those of a server. `tests/view/test_file.py` writes
 * both, and names them in the environment.
 */

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { FileSource } from "../src/file/file_source";
import { Pieces } from "../src/file/pieces";
import type { Answer } from "../src/base/answer";
import type { TraceShape, EventPage, BlameShape } from "../src/shapes";

const file = process.env["PLAIT_VIEW_FILE"];
const expected = process.env["PLAIT_VIEW_EXPECTED"];

interface Question {
  readonly method: string;
  readonly args: readonly (string | number)[];
  readonly answer: unknown;
}

/** A file names events of traces and causes by their places, and cuts their words. */
function comparable(method: string, answer: unknown): unknown {
  if (method === "why")
    return (answer as TraceShape).steps.map((step) => [step.depth, step.how, step.session, step.seq, step.kind, step.relation, step.placement]);
  if (method === "events") return (answer as EventPage).events.map(({ causes: _causes, parents: _parents, ...rest }) => rest);
  if (method === "blame") {
    const { lines, writers } = answer as BlameShape;
    return lines.map((at) => [writers[at]!.log, writers[at]!.seq, writers[at]!.tool, writers[at]!.kind]);
  }
  return answer;
}

describe.skipIf(!file || !expected)("a page in one file", () => {
  it("answers as a server does", async () => {
    const html = readFileSync(file!, "utf8");
    const found = [...html.matchAll(/<script type="application\/x-plait" data-name="([^"]+)">([^<]*)</g)];
    const source = await FileSource.open(new Pieces(found.map((each) => [each[1]!, each[2]!])));
    const questions = JSON.parse(readFileSync(expected!, "utf8")) as Question[];
    const counts: Record<string, number> = {};
    for (const { method, args, answer } of questions) {
      const ask = source[method as keyof FileSource] as (...args: readonly (string | number)[]) => Answer<unknown>;
      const got = await ask(...args).get().catch((error: unknown) => ({ failed: String(error) }));
      expect({ method, args, answer: comparable(method, got) }).toEqual({ method, args, answer: comparable(method, answer) });
      counts[method] = (counts[method] ?? 0) + 1;
    }
    console.log(`compared ${JSON.stringify(counts)}`);
  });
});
