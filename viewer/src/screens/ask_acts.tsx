/** The ways to answer an ask: in the inbox, over the workbench, and in the step that waits. */

import { useState } from "preact/hooks";
import { answeredWords, isForActor, nameOf } from "../base/asks";
import { useHold } from "../base/hold";
import { useKeys } from "../base/keys";
import { usePage } from "../base/page";
import { route } from "../base/router";
import { Icon } from "../parts/icons";
import { Line, Pieces } from "../parts/text";
import type { ActShape, AskShape, Json, WaitKind } from "../shapes";
import { Field, parseJson, Refused, useActing, useReadOnly, type Acting } from "./acting";
import { Resume } from "./run_line";
import { useActor } from "./standing";

/** The ways to answer an ask; after the answer, what came of it. */
export function AskActs({ ask }: { ask: AskShape }) {
  const act = useActing<ActShape>();
  const readOnly = useReadOnly();
  if (act.done) return <Done ask={ask} done={act.done} />;
  if (ask.answered)
    return (
      <div class="ask-answer ask-done" role="status">
        <p><AnswerIcon isRefusal={ask.answered.kind === "ApprovalDenied"} /> <Pieces text={answeredWords(ask)} /></p>
        <Resume session={ask.resume} />
      </div>
    );
  return readOnly ? <p class="ask-answer faint">{readOnly}</p> : <Acts ask={ask} act={act} />;
}

function AnswerIcon({ isRefusal }: { isRefusal: boolean }) {
  return <Icon name={isRefusal ? "failed" : "passed"} class={isRefusal ? "bad" : "good"} />;
}

type Way = "" | "grant" | "correct" | "deny";

interface ActsProps {
  readonly ask: AskShape;
  readonly act: Acting<ActShape>;
}

function Acts({ ask, act }: ActsProps) {
  switch (ask.kind) {
    case "approval":
      return <ApprovalActs ask={ask} act={act} />;
    case "question":
      return <QuestionActs ask={ask} act={act} />;
    case "unknown":
      return <UnknownActs ask={ask} act={act} />;
    case "verdict":
      return <VerdictActs ask={ask} act={act} />;
    case "timer":
      return <TimerActs ask={ask} act={act} />;
  }
}

function useSend(ask: AskShape, act: Acting<ActShape>) {
  const { source } = usePage();
  return (verb: string, body: { [key: string]: Json }) => void act.start(() => source.act(ask.short, verb, body));
}

/** A call is granted, granted corrected, or denied. Each of them asks once more. */
function ApprovalActs({ ask, act }: ActsProps) {
  const send = useSend(ask, act);
  const [way, setWay] = useState<Way>("");
  const [edited, setEdited] = useState(() => JSON.stringify(ask.arguments, null, 2));
  const [words, setWords] = useState("");
  const parsed = parseJson(edited);
  const error = "error" in parsed ? parsed.error : typeof parsed.value !== "object" || parsed.value === null || Array.isArray(parsed.value) ? "All arguments, as one JSON object." : "";
  const isChanged = !error && "value" in parsed && JSON.stringify(parsed.value) !== JSON.stringify(ask.arguments);
  useHold(way !== "");
  const isHidden = route.value.screen === "session"; // the workbench has these keys, for any step
  useKeys(
    [
      { key: "a", words: "grant what waits (asks)", act: () => !ask.is_late && setWay("grant"), group: "Act", isHidden },
      { key: "d", words: "deny what waits (asks)", act: () => setWay("deny"), group: "Act", isHidden },
    ],
    [ask.is_late, isHidden],
  );
  return (
    <form
      class="ask-answer"
      onSubmit={(event) => {
        event.preventDefault();
        if (way === "grant") send("approve", { ask: ask.id, note: words });
        else if (way === "deny") send("deny", { ask: ask.id, reason: words });
        else if (way === "correct" && !error && "value" in parsed) send("approve", { ask: ask.id, edited: parsed.value, note: words });
      }}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || way === "") return;
        event.preventDefault();
        event.stopPropagation();
        setWay("");
      }}
    >
      {act.failure && <Refused failure={act.failure} />}
      {way === "" && (
        <div class="acts">
          <button type="button" class="button first big" disabled={act.isBusy || ask.is_late} onClick={() => setWay("grant")}>
            <Icon name="passed" /> Grant… <kbd class="key" aria-hidden="true">a</kbd>
          </button>
          <button type="button" class="button big" disabled={act.isBusy || ask.is_late} onClick={() => setWay("correct")}>Grant corrected…</button>
          <button type="button" class="button big" disabled={act.isBusy} onClick={() => setWay("deny")}>
            <Icon name="failed" class="bad" /> Deny… <kbd class="key" aria-hidden="true">d</kbd>
          </button>
        </div>
      )}
      {way === "grant" && (
        <>
          <p><b class="mono"><Pieces text={ask.tool ?? "It"} /></b> runs with exactly the arguments that are shown.</p>
          <Field label="Note (on record)" value={words} onInput={setWords} isFocused />
          <div class="acts">
            <button type="submit" class="button first big" disabled={act.isBusy}>Grant it</button>
            <Back onClick={() => setWay("")} />
          </div>
        </>
      )}
      {way === "correct" && (
        <>
          <Field label="Arguments that you allow instead" value={edited} onInput={setEdited} rows={Math.min(16, edited.split("\n").length + 1)} isCode error={error} isFocused />
          <Field label="Note (on record)" value={words} onInput={setWords} />
          <div class="acts">
            <button type="submit" class="button first big" disabled={act.isBusy || !!error || !isChanged}>Grant this instead</button>
            <Back onClick={() => setWay("")} />
            {!isChanged && !error && <span class="faint">nothing is changed yet</span>}
          </div>
        </>
      )}
      {way === "deny" && (
        <>
          <p>It does not run.</p>
          <Field label="Reason (the agent reads it)" value={words} onInput={setWords} rows={2} isFocused />
          <div class="acts">
            <button type="submit" class="button danger big" disabled={act.isBusy}>Deny it</button>
            <Back onClick={() => setWay("")} />
          </div>
        </>
      )}
    </form>
  );
}

function Back({ onClick }: { onClick: () => void }) {
  return <button type="button" class="button plain big" onClick={onClick}>Back</button>;
}

function QuestionActs({ ask, act }: ActsProps) {
  const send = useSend(ask, act);
  const [words, setWords] = useState("");
  const isFree = ask.choices.length === 0;
  const isText = ask.returns === null || (typeof ask.returns === "object" && !Array.isArray(ask.returns) && ask.returns["type"] === "string");
  const parsed = isText ? { value: words as Json } : parseJson(words);
  return (
    <form
      class="ask-answer"
      onSubmit={(event) => {
        event.preventDefault();
        if ("value" in parsed && words) send("answer", { ask: ask.id, value: parsed.value });
      }}
    >
      {act.failure && <Refused failure={act.failure} />}
      {!isFree && (
        <div class="acts" role="group" aria-label="Answers">
          {ask.choices.map((choice) => (
            <button key={choice} type="button" class="button big" disabled={act.isBusy} onClick={() => send("answer", { ask: ask.id, value: choice })}>
              <Line text={choice} />
            </button>
          ))}
        </div>
      )}
      {isFree && (
        <>
          <Field label={isText ? "Your answer" : "Your answer, as JSON"} value={words} onInput={setWords} rows={3} isCode={!isText} error={words && "error" in parsed ? parsed.error : ""} />
          <div class="acts">
            <button type="submit" class="button first big" disabled={act.isBusy || !words || "error" in parsed}>Answer</button>
          </div>
        </>
      )}
    </form>
  );
}

const OUTCOMES = [
  ["happened", "It happened", "The run goes on with the result that you give."],
  ["did_not_happen", "It did not happen", "The run may make the call again."],
  ["compensated", "It was undone", "It happened, and somebody took it back."],
] as const;

function UnknownActs({ ask, act }: ActsProps) {
  const send = useSend(ask, act);
  const [verdict, setVerdict] = useState<(typeof OUTCOMES)[number][0] | "">("");
  const [value, setValue] = useState("");
  const [note, setNote] = useState("");
  const returns = ask.returns;
  const isText = returns === null || (typeof returns === "object" && !Array.isArray(returns) && returns["type"] === "string");
  const parsed = value === "" ? { value: null } : isText ? { value: value as Json } : parseJson(value);
  return (
    <form
      class="ask-answer"
      onSubmit={(event) => {
        event.preventDefault();
        if (verdict && "value" in parsed) send("resolve", { ask: ask.id, verdict, value: parsed.value, note });
      }}
    >
      {act.failure && <Refused failure={act.failure} />}
      <fieldset class="radios">
        <legend class="label">Look where it would show, then say what became of it</legend>
        {OUTCOMES.map(([name, words, hint]) => (
          <label key={name} class="radio">
            <input type="radio" name={`outcome-${ask.id}`} value={name} checked={verdict === name} onChange={() => setVerdict(name)} />
            <span>{words} <span class="faint">{hint}</span></span>
          </label>
        ))}
      </fieldset>
      {verdict === "happened" && (
        <Field label={isText ? "What it returned" : "What it returned, as JSON"} value={value} onInput={setValue} isCode={!isText} error={"error" in parsed ? parsed.error : ""} />
      )}
      {verdict && <Field label="How you know (on record)" value={note} onInput={setNote} />}
      <div class="acts">
        <button type="submit" class="button first big" disabled={act.isBusy || !verdict || "error" in parsed}>Record it</button>
      </div>
    </form>
  );
}

function VerdictActs({ ask, act }: ActsProps) {
  const { source } = usePage();
  const [words, setWords] = useState("");
  const about = ask.of ?? ask.session;
  const actor = useActor();
  const isJudge = isForActor(ask, actor);
  const isOff = act.isBusy || !isJudge;
  const send = (passed: boolean) =>
    void act.start(() => source.act(about, "validate", { name: ask.signal, passed, ...(words ? { detail: words } : {}) }));
  return (
    <form class="ask-answer" onSubmit={(event) => event.preventDefault()}>
      {act.failure && <Refused failure={act.failure} />}
      {!isJudge && <p class="warn" role="note">A verdict of yours would not satisfy the gate: that needs <Pieces text={nameOf(ask.by)} />. You are <Pieces text={nameOf(actor)} />.</p>}
      {isJudge && <Field label="Detail (on record)" value={words} onInput={setWords} rows={2} />}
      <div class="acts">
        <button type="button" class="button first big" disabled={isOff} onClick={() => send(true)}><Icon name="passed" /> It passes</button>
        <button type="button" class="button big" disabled={isOff} onClick={() => send(false)}><Icon name="failed" class="bad" /> It fails</button>
      </div>
    </form>
  );
}

function TimerActs({ ask, act }: ActsProps) {
  const send = useSend(ask, act);
  if (!ask.signal) return <p class="ask-answer faint">Nobody has to do anything: it goes on at its time.</p>;
  return (
    <div class="ask-answer">
      {act.failure && <Refused failure={act.failure} />}
      <button type="button" class="button big" disabled={act.isBusy} onClick={() => send("signal", { name: ask.signal, value: null })}>Send the signal now</button>
    </div>
  );
}

const DONE_WORDS: Readonly<Record<WaitKind, string>> = {
  approval: "Your word is on record.", question: "Your answer is on record.", unknown: "The outcome is on record.", verdict: "The verdict is on record.", timer: "The signal is on record.",
};

function Done({ ask, done }: { ask: AskShape; done: ActShape }) {
  if (done.still_waits)
    return (
      <div class="ask-answer ask-done" role="status">
        <p><Icon name="warn" class="warn" /> <Pieces text={done.still_waits} /></p>
      </div>
    );
  const resume = done.resume || (ask.run ? ask.resume : "");
  return (
    <div class="ask-answer ask-done" role="status">
      <p><Icon name="passed" class="good" /> {DONE_WORDS[ask.kind]}</p>
      {resume && <Resume session={resume} />}
    </div>
  );
}
