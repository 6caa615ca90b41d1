/** An answer of a source: asked for when somebody looks, kept, and let go if nobody waits for it. */

import { useEffect, useRef, useState } from "preact/hooks";

/** The sentence of an error, as the server or the page words it. */
export class Failure extends Error {
  constructor(
    readonly kind: string,
    message: string,
    readonly next = "",
    readonly status = 0,
    readonly fields: Readonly<Record<string, unknown>> = {},
  ) {
    super(message);
  }

  get isAway(): boolean {
    return this.status === 0;
  }
}

export function asFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  return new Failure("PageError", error instanceof Error ? error.message : String(error), "", -1);
}

export class Answer<T> {
  value: T | undefined;
  error: Failure | undefined;
  #load: (abort: AbortSignal) => Promise<T>;
  #abort: AbortController | null = null;
  #promise: Promise<T> | null = null;
  #users = 0;
  #listeners = new Set<() => void>();

  /** The same `question` asked again is another answer to it. */
  constructor(load: (abort: AbortSignal) => Promise<T>, value?: T, readonly question = "") {
    this.#load = load;
    this.value = value;
  }

  get isSettled(): boolean {
    return this.value !== undefined || this.error !== undefined;
  }

  /** Ask, unless it was asked before, and return the promise of the value. */
  get(): Promise<T> {
    if (this.value !== undefined) return Promise.resolve(this.value);
    if (this.#promise) return this.#promise;
    this.error = undefined;
    const abort = (this.#abort = new AbortController());
    this.#promise = this.#load(abort.signal).then(
      (value) => {
        this.value = value;
        this.#tell();
        return value;
      },
      (error: unknown) => {
        if (!abort.signal.aborted) {
          this.error = asFailure(error);
          this.#tell();
        }
        this.#promise = null;
        throw error;
      },
    );
    this.#promise.catch(() => undefined);
    return this.#promise;
  }

  /** Ask in the name of a panel. Return the function that ends its interest. */
  use(listener: () => void): () => void {
    this.#users += 1;
    this.#listeners.add(listener);
    void this.get().catch(() => undefined);
    return () => {
      this.#users -= 1;
      this.#listeners.delete(listener);
      if (this.#users === 0 && !this.isSettled) this.#drop();
    };
  }

  retry(): void {
    this.#promise = null;
    this.error = undefined;
    this.#tell();
    void this.get().catch(() => undefined);
  }

  #drop(): void {
    this.#abort?.abort();
    this.#abort = null;
    this.#promise = null;
  }

  #tell(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

/** A cache of answers by key. The least recently used ones go first. */
export class AnswerCache {
  #answers = new Map<string, Answer<unknown>>();
  constructor(private readonly limit = 800) {}

  get<T>(key: string, load: (abort: AbortSignal) => Promise<T>): Answer<T> {
    let answer = this.#answers.get(key) as Answer<T> | undefined;
    if (answer) this.#answers.delete(key);
    else answer = new Answer<T>(load, undefined, key);
    this.#answers.set(key, answer as Answer<unknown>);
    if (this.#answers.size > this.limit) {
      const oldest = this.#answers.keys().next().value;
      if (oldest !== undefined) this.#answers.delete(oldest);
    }
    return answer;
  }

  drop(isOutdated: (key: string, value: unknown) => boolean): void {
    for (const [key, answer] of this.#answers)
      if (isOutdated(key, answer.value)) this.#answers.delete(key);
  }
}

export interface Shown<T> {
  /** The newest value there is; of the answer before while this one is on its way. If the same
   * question was asked again in vain, the value that it had stays beside the error: somebody may be
   * at work on it.
   */
  readonly value: T | undefined;
  readonly error: Failure | undefined;
  /** True: the value belongs to the answer before. */
  readonly isStale: boolean;
  readonly retry: () => void;
}

/** Show an answer in a component. A cached one is there in the same frame; another is asked for
 * after `delay_ms`, so that a scrub over many places asks for few. null: there is nothing to ask.
 */
export function useAnswer<T>(answer: Answer<T> | null, delay_ms = 0): Shown<T> {
  const [, redraw] = useState(0);
  const last = useRef<T | undefined>(undefined);
  const lastQuestion = useRef("");
  useEffect(() => {
    if (!answer) return;
    if (answer.value !== undefined) {
      // It came between the drawing and now.
      if (last.current !== answer.value) redraw((n) => n + 1);
      return;
    }
    let release: (() => void) | undefined;
    const begin = () => {
      release = answer.use(() => redraw((n) => n + 1));
    };
    const timer = delay_ms > 0 ? setTimeout(begin, delay_ms) : (begin(), undefined);
    return () => {
      clearTimeout(timer);
      release?.();
    };
  }, [answer]);
  if (!answer) {
    last.current = undefined;
    return { value: undefined, error: undefined, isStale: false, retry: () => undefined };
  }
  if (answer.value !== undefined) {
    last.current = answer.value;
    lastQuestion.current = answer.question;
  }
  const isAgain = answer.question !== "" && answer.question === lastQuestion.current;
  return {
    value: answer.value ?? (answer.error && !isAgain ? undefined : last.current),
    error: answer.error,
    isStale: answer.value === undefined,
    retry: () => answer.retry(),
  };
}
