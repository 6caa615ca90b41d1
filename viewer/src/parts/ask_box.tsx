/** An ask that waits for a person: the exact thing, and the answers to it. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { asFailure, type Failure } from "../base/answer";
import { useHold } from "../base/hold";
import { useKeys } from "../base/keys";
import { usePage } from "../base/page";
import type { ActShape, Json, RunShape } from "../shapes";
import { Icon } from "./icons";
import { Pieces } from "./text";

export type AskKind = "approval" | "unknown";

interface AskBoxProps {
  readonly session: string;
  readonly ask: string;
  readonly kind: AskKind;
  /** Of an approval: the arguments that are asked for. */
  readonly arguments?: Json;
  /** True: the keys a and d belong to this ask. */
  readonly hasKeys?: boolean;
  readonly onAnswered?: (act: ActShape) => void;
}

type Mode = "" | "grant" | "correct" | "deny" | "resolve";

export function AskBox(props: AskBoxProps) {
  const { source } = usePage();
  const [mode, setMode] = useState<Mode>("");
  const [failure, setFailure] = useState<Failure | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [done, setDone] = useState<ActShape | null>(null);
  const isReadOnly = source.isFile || source.store().value?.read_only === true;
  useKeys(
    props.hasKeys && props.kind === "approval" && !isReadOnly
      ? [
          { key: "a", words: "grant what the step waits for", act: () => setMode("grant"), group: "Act", isHidden: true },
          { key: "d", words: "deny what the step waits for", act: () => setMode("deny"), group: "Act", isHidden: true },
        ]
      : [],
    [props.hasKeys, props.kind, isReadOnly],
  );
  if (done) return <Answered act={done} />;
  if (isReadOnly) return <p class="ask-box quiet">It waits for an answer. This page is read-only: answer with plait inbox.</p>;
  const act = async (verb: string, body: { [key: string]: Json }) => {
    setBusy(true);
    setFailure(null);
    try {
      const answer = await source.act(props.session, verb, { ask: props.ask, ...body });
      setDone(answer);
      props.onAnswered?.(answer);
    } catch (error) {
      setFailure(asFailure(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <div class="ask-box">
      {mode === "" && <Choices kind={props.kind} hasKeys={props.hasKeys ?? false} choose={setMode} />}
      {mode !== "" && <AnswerForm {...props} mode={mode} isBusy={isBusy} act={act} cancel={() => setMode("")} />}
      {failure && (
        <p class="bad" role="alert">
          <Pieces text={failure.message} />
        </p>
      )}
    </div>
  );
}

function Choices({ kind, hasKeys, choose }: { kind: AskKind; hasKeys: boolean; choose: (mode: Mode) => void }) {
  if (kind === "unknown")
    return (
      <div class="ask-acts">
        <span class="warn">It may have happened.</span>
        <button type="button" class="button first" onClick={() => choose("resolve")}>Say what happened…</button>
      </div>
    );
  return (
    <div class="ask-acts">
      <button type="button" class="button first" onClick={() => choose("grant")}>Grant… {hasKeys && <kbd class="key">a</kbd>}</button>
      <button type="button" class="button" onClick={() => choose("correct")}>Correct and grant…</button>
      <button type="button" class="button" onClick={() => choose("deny")}>Deny… {hasKeys && <kbd class="key">d</kbd>}</button>
    </div>
  );
}

interface FormProps extends AskBoxProps {
  readonly mode: Mode;
  readonly isBusy: boolean;
  readonly act: (verb: string, body: { [key: string]: Json }) => Promise<void>;
  readonly cancel: () => void;
}

const FORM_WORDS: Readonly<Record<Exclude<Mode, "">, readonly [verb: string, button: string, field: string]>> = {
  grant: ["approve", "Grant", "A note (optional)"],
  correct: ["approve", "Grant corrected", "A note (optional)"],
  deny: ["deny", "Deny", "Reason, for the agent"],
  resolve: ["resolve", "Record", "A note (optional)"],
};

function AnswerForm({ mode, isBusy, act, cancel, ...props }: FormProps) {
  const [error, setError] = useState("");
  const form = useRef<HTMLFormElement>(null);
  useHold(true);
  // Once: what is drawn again must not take the focus from another field.
  useLayoutEffect(() => form.current?.querySelector<HTMLInputElement>('[name="words"]')?.focus(), []);
  const [verb, button, field] = FORM_WORDS[mode as Exclude<Mode, "">];
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(form.current!);
    const words = String(data.get("words") ?? "");
    if (mode === "deny") return void act(verb, { reason: words });
    if (mode === "resolve") return void act(verb, { verdict: String(data.get("verdict")), note: words });
    if (mode === "grant") return void act(verb, { note: words });
    try {
      void act(verb, { note: words, edited: JSON.parse(String(data.get("edited"))) as Json });
    } catch {
      setError("These arguments are no JSON.");
    }
  };
  return (
    <form
      ref={form}
      class="ask-form"
      onSubmit={submit}
      onKeyDown={(event) => {
        if (event.key === "Escape") {
          event.stopPropagation();
          cancel();
        }
      }}
    >
      {(mode === "grant" || mode === "deny") && <p class="quiet">{mode === "grant" ? "It runs with exactly the arguments below." : "It does not run. The agent reads the reason."}</p>}
      {mode === "correct" && (
        <label>
          Arguments
          <textarea class="input mono" name="edited" rows={6} defaultValue={JSON.stringify(props.arguments, null, 2)} spellcheck={false} />
        </label>
      )}
      {mode === "resolve" && (
        <fieldset>
          <legend class="unseen">What happened</legend>
          {([["happened", "It happened"], ["did_not_happen", "It did not happen"], ["compensated", "It happened and was undone"]] as const).map(
            ([value, words], index) => (
              <label key={value} class="ask-radio">
                <input type="radio" name="verdict" value={value} defaultChecked={index === 0} /> {words}
              </label>
            ),
          )}
        </fieldset>
      )}
      <label>
        {field}
        <input class="input" name="words" autocomplete="off" />
      </label>
      {error && <p class="bad" role="alert">{error}</p>}
      <div class="ask-acts">
        <button type="submit" class="button first" disabled={isBusy}>{button}</button>
        <button type="button" class="button plain" onClick={cancel}>Cancel</button>
      </div>
    </form>
  );
}

/** After an answer: the run goes on when somebody resumes it. */
function Answered({ act }: { act: ActShape }) {
  const { source } = usePage();
  const [words, setWords] = useState("");
  const canRun = source.store().value?.can_run && act.resume;
  const resume = async () => {
    setWords("Starts…");
    try {
      const run = await source.post<RunShape>("/api/runs", { verb: "resume", session: act.resume });
      setWords(`Runs as process ${run.pid}.`);
    } catch (error) {
      setWords(asFailure(error).message);
    }
  };
  return (
    <div class="ask-box" role="status">
      <div class="ask-acts">
        <Icon name="passed" class="good" /> <span>Recorded.</span>
        {canRun && !words && <button type="button" class="button first" onClick={() => void resume()}>Resume the run</button>}
        {words && <span class="quiet"><Pieces text={words} /></span>}
      </div>
    </div>
  );
}
