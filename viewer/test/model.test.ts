import { effect } from "@preact/signals";
import { describe, expect, it } from "vitest";
import { AnswerCache, type Answer } from "../src/base/answer";
import { Model } from "../src/base/model";
import { sessionRoute } from "../src/base/router";
import type { StepPage, StepShape } from "../src/shapes";
import type { Source } from "../src/source";
import { branch, outlineOf, stretch } from "./family";

const STEPS = 12;

/** A source that has read the words before the last steps were there; only news make them old. */
class LateSource {
  #cache = new AnswerCache();
  asked = 0;
  family = () => this.#answer("family", () => ({
    root: "root", title: "", lane_count: 1, number: 1,
    branches: [branch("root", 0, { tip: STEPS * 2, step_count: STEPS })], stretches: [stretch(0, 0, 0, STEPS, [])],
  }));
  session = () => this.#answer("session", () => ({ id: "root", place: 2 }));
  outlines = () => this.#answer("outlines", () => ({ outlines: [outlineOf("root", STEPS)] }));
  detail = () => this.#answer("detail", () => Promise.reject(new Error("not here")));
  steps = () => this.#answer("steps", (): StepPage => {
    this.asked += 1;
    const total = this.asked < 3 ? STEPS - 2 : STEPS;
    const steps = Array.from({ length: total }, (_, index) => ({ log: "root", index, seq: index * 2 + 2 }) as unknown as StepShape);
    return { log: "root", first: 0, total, steps };
  });

  forget(): void {
    this.#cache.drop((key) => key === "steps");
  }

  #answer<T>(key: string, make: () => T | Promise<T>): Answer<T> {
    return this.#cache.get(key, async () => make());
  }
}

describe("words that are older than the outline", () => {
  it("are asked for again until they are there, and do not keep the page busy", async () => {
    const source = new LateSource();
    const model = new Model(source as unknown as Source);
    await model.open(sessionRoute("root", 2));
    let draws = 0;
    const end = effect(() => {
      void model.version.value;
      draws += 1;
      if (draws > 100) throw new Error("it is drawn without an end");
      model.need(0, STEPS);
    });
    for (let turn = 0; turn < 50 && !model.stepAt(STEPS - 1); turn += 1) await new Promise((done) => setTimeout(done, 10));
    end();
    expect(model.stepAt(STEPS - 1)).toMatchObject({ index: STEPS - 1 });
    expect(source.asked).toBe(3);
    expect(draws).toBeLessThan(12);
  });
});
