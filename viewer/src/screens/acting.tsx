/** Acts: sent, refused, done. What was typed stays until it is done. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { asFailure, type Failure } from "../base/answer";
import { useHold } from "../base/hold";
import { usePage } from "../base/page";
import { hrefOf, sessionRoute } from "../base/router";
import { Icon } from "../parts/icons";
import { Pieces } from "../parts/text";
import type { Json } from "../shapes";

export interface Acting<T> {
  readonly isBusy: boolean;
  readonly failure: Failure | null;
  readonly done: T | null;
  readonly start: (what: () => Promise<T>) => Promise<T | null>;
  readonly clear: () => void;
}

/** Do one thing at a time, and keep its outcome. Where nobody looks any more, nothing follows from it:
 * a form that was left must not close the dialog that stands there now.
 */
export function useActing<T>(): Acting<T> {
  const [state, set] = useState<{ isBusy: boolean; failure: Failure | null; done: T | null }>({
    isBusy: false,
    failure: null,
    done: null,
  });
  const isShown = useRef(true);
  useEffect(() => () => {
    isShown.current = false;
  }, []);
  const start = async (what: () => Promise<T>) => {
    if (state.isBusy) return null;
    set({ isBusy: true, failure: null, done: null });
    try {
      const done = await what();
      if (!isShown.current) return null;
      set({ isBusy: false, failure: null, done });
      return done;
    } catch (error) {
      set({ isBusy: false, failure: asFailure(error), done: null });
      return null;
    }
  };
  return { ...state, start, clear: () => set({ isBusy: false, failure: null, done: null }) };
}

/** Why an act was refused: the error's own sentence, and where the session stands now. */
export function Refused({ failure, children }: { failure: Failure; children?: ComponentChildren }) {
  const fields = (failure.fields["fields"] ?? {}) as Readonly<Record<string, Json>>;
  const session = typeof fields["session"] === "string" ? fields["session"] : "";
  return (
    <div class="refused" role="alert">
      <Icon name="warn" />
      <div>
        <p>
          {failure.isAway ? (
            "The server is away. What you typed is kept; try again when it is back."
          ) : (
            <Pieces text={failure.message} />
          )}
        </p>
        {failure.status === 409 && session && (
          <p>
            <a class="link" href={hrefOf(sessionRoute(session))}>Show what is there now</a>
          </p>
        )}
        {children}
      </div>
    </div>
  );
}

/** True if nothing can be changed from here, and the sentence that says why. */
export function useReadOnly(): string {
  const { source } = usePage();
  if (source.isFile) return "This is a copy in one file: it shows, and changes nothing.";
  const store = source.store().value;
  return store?.read_only ? "This server only reads: start it without --read-only to act." : "";
}

interface FieldProps {
  readonly label: string;
  readonly value: string;
  readonly onInput: (value: string) => void;
  readonly hint?: ComponentChildren;
  readonly rows?: number;
  readonly isCode?: boolean;
  readonly error?: string;
  readonly placeholder?: string;
  readonly list?: string;
  /** True: it has the focus as soon as it is shown. */
  readonly isFocused?: boolean;
}

let fieldCount = 0;

/** A labelled field: one line, or as many as `rows`. */
export function Field(props: FieldProps) {
  const [id] = useState(() => `field-${(fieldCount += 1)}`);
  const [first] = useState(props.value);
  useHold(props.value !== first);
  const field = useRef<HTMLInputElement & HTMLTextAreaElement>(null);
  useEffect(() => {
    if (props.isFocused) field.current?.focus();
  }, []);
  const common = {
    id,
    class: `input ${props.isCode ? "mono" : ""}`,
    value: props.value,
    placeholder: props.placeholder,
    spellcheck: !props.isCode,
    "aria-invalid": props.error ? true : undefined,
    "aria-describedby": props.error || props.hint ? `${id}-hint` : undefined,
    ref: field,
    onInput: (event: { currentTarget: HTMLInputElement | HTMLTextAreaElement }) => props.onInput(event.currentTarget.value),
  };
  return (
    <div class="field">
      <label class="label" for={id}>{props.label}</label>
      {props.rows ? <textarea {...common} rows={props.rows} /> : <input {...common} type="text" autocomplete="off" />}
      {(props.error || props.hint) && (
        <p id={`${id}-hint`} class={props.error ? "field-hint bad" : "field-hint faint"}>{props.error || props.hint}</p>
      )}
    </div>
  );
}

export function parseJson(text: string): { readonly value: Json } | { readonly error: string } {
  try {
    return { value: JSON.parse(text) as Json };
  } catch (error) {
    return { error: `This is not JSON: ${error instanceof Error ? error.message : "it cannot be read"}` };
  }
}
