/** One ask: everything that a person decides by, and the ways to answer it. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { answeredWords, isForActor, nameOf } from "../base/asks";
import { agoText, gapText, timeText } from "../base/format";
import { usePage } from "../base/page";
import { hrefOf, sessionRoute } from "../base/router";
import { plainText } from "../base/text";
import { Icon, type IconName } from "../parts/icons";
import { Line, Pieces, Text } from "../parts/text";
import type { ActShape, AskShape, Json, WaitKind } from "../shapes";
import { FileDiffView } from "../workbench/diff";
import { Field, parseJson, Refused, useActing, useReadOnly, type Acting } from "./acting";
import { parsePatch } from "./patch";
import { Resume } from "./run_line";
import { useActor } from "./standing";

export { nameOf };

export const ASK_ICONS: Readonly<Record<WaitKind, IconName>> = {
  approval: "hand", question: "question", unknown: "warn", timer: "clock", verdict: "flag",
};

export const ASK_WORDS: Readonly<Record<WaitKind, string>> = {
  approval: "asks to", question: "asks", unknown: "outcome unknown", timer: "waits", verdict: "waits for a verdict",
};

/** What is asked, as one line for lists. */
export function askLine(ask: AskShape): string {
  switch (ask.kind) {
    case "approval":
      return `${ask.tool ?? "an effect"} ${shortArguments(ask.arguments)}`;
    case "question":
      return ask.question;
    case "unknown":
      return `Did ${ask.tool ?? "it"} happen? ${shortArguments(ask.arguments)}`;
    case "verdict":
      return `${ask.signal || "a verdict"} ${ask.by ? `by ${nameOf(ask.by)}` : ""}`;
    case "timer":
      return ask.signal ? `for the signal ${ask.signal}` : "for a time";
  }
}

/** Arguments that say by themselves what a call is about. */
const MAIN = ["command", "path", "url", "query"];

function shortArguments(value: Json): string {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value === null ? "" : JSON.stringify(value);
  const main = MAIN.filter((key) => typeof value[key] === "string");
  const rest = Object.keys(value).filter((key) => !main.includes(key));
  return [
    ...main.map((key) => String(value[key])),
    ...rest.map((key) => `${key}=${typeof value[key] === "string" ? value[key] : JSON.stringify(value[key])}`),
  ].join(" ");
}

export function expiryText(ask: AskShape, now = Date.now()): string {
  if (ask.is_late) return "expired";
  const end = ask.expires ?? ask.until;
  if (end === null) return "";
  const ms = end / 1000 - now;
  return ms <= 0 ? "expired" : `expires in ${gapText(ms)}`;
}

function shownField(ask: AskShape, name: string): string {
  const shown = ask.shown;
  if (shown === null || typeof shown !== "object" || Array.isArray(shown)) return "";
  const value = shown[name];
  return typeof value === "string" ? value : "";
}

const FOREIGN = ["web", "tool", "mcp", "file", "external"];

export function AskView({ ask }: { ask: AskShape }) {
  const files = ask.patch ? parsePatch(ask.patch) : [];
  const why = ask.reason || "";
  const rule = shownField(ask, "rule") || shownField(ask, "why");
  const place = sessionRoute(ask.short, ask.seq);
  const pairs: [string, ComponentChildren][] = [
    ["Who asks", <Pieces text={nameOf(ask.actor)} />],
    ["For", <Pieces text={ask.behalf ? nameOf(ask.behalf) : "nobody in particular"} />],
  ];
  if (why) pairs.push(["Why", <Text text={why} lines={12} />]);
  if (ask.why) pairs.push([ask.kind === "unknown" ? "What happened" : "Why", <Text text={ask.why} lines={12} />]);
  if (rule) pairs.push(["Why it asks first", <Pieces text={rule} />]);
  if (ask.kind === "verdict" && ask.by) pairs.push(["May be given by", <Pieces text={nameOf(ask.by)} />]);
  pairs.push(["It had read", <Origins origins={ask.origins} />]);
  if (ask.effect) pairs.push(["Effect class", ask.effect.replaceAll("_", " ")]);
  if (ask.version) pairs.push(["Version", <span class="mono"><Pieces text={ask.version} /></span>]);
  return (
    <article class="ask" aria-label={plainText(askLine(ask))}>
      <header class="ask-head">
        <Icon name={ASK_ICONS[ask.kind]} class={ask.kind === "unknown" ? "bad" : "warn"} />
        <div>
          <h2><AskTitle ask={ask} /></h2>
          <p class="detail-figures">
            <a class="link" href={hrefOf(place)}><Line text={ask.name} /> <span class="mono">@{ask.seq}</span></a>
            <span title={timeText(ask.since)}>{agoText(ask.since)}</span>
            {expiryText(ask) && <span class={ask.is_late ? "bad" : ""} title={ask.expires ? timeText(ask.expires) : undefined}>{expiryText(ask)}</span>}
          </p>
        </div>
      </header>
      {(ask.kind === "approval" || ask.kind === "unknown") && (
        <section class="block">
          <h3 class="label">{ask.kind === "approval" ? "The call, exactly" : "The call that was made"}</h3>
          <Call ask={ask} />
        </section>
      )}
      {files.length > 0 && (
        <section class="block">
          <h3 class="label">What it would change</h3>
          {files.map((file) => <FileDiffView key={file.path} file={file} place={{ log: ask.session, seq: ask.seq }} />)}
        </section>
      )}
      {ask.patch && files.length === 0 && (
        <section class="block"><h3 class="label">What it would change</h3><Text text={ask.patch} isCode lines={40} /></section>
      )}
      {ask.lapsed_memories.length > 0 && (
        <section class="block">
          <h3 class="label warn">It relied on memories that do not hold any more</h3>
          <ul>
            {ask.lapsed_memories.map((memory) => (
              <li key={memory.id}>“<Pieces text={memory.text} />” <span class="warn"><Pieces text={memory.change} /></span></li>
            ))}
          </ul>
        </section>
      )}
      {ask.failed && (
        <section class="block"><h3 class="label bad">A verdict was given, and failed</h3><p class="faint">{`by ${nameOf(ask.failed.actor)}, ${agoText(ask.failed.time)}`}</p></section>
      )}
      <section class="block">
        <dl class="pairs">{pairs.map(([name, value], index) => [<dt key={`${index}-name`}>{name}</dt>, <dd key={index}>{value}</dd>])}</dl>
      </section>
      <AskActs ask={ask} />
    </article>
  );
}

/** The ways to answer an ask; after the answer, what came of it. */
export function AskActs({ ask }: { ask: AskShape }) {
  const act = useActing<ActShape>();
  const readOnly = useReadOnly();
  if (act.done) return <Done ask={ask} done={act.done} />;
  if (ask.answered)
    return (
      <div class="ask-answer ask-done" role="status">
        <p><Icon name="passed" class="good" /> <Pieces text={answeredWords(ask)} /></p>
        <Resume session={ask.resume} />
      </div>
    );
  return readOnly ? <p class="ask-answer faint">{readOnly}</p> : <Acts ask={ask} act={act} />;
}

function AskTitle({ ask }: { ask: AskShape }) {
  switch (ask.kind) {
    case "approval":
      return <><Pieces text={nameOf(ask.actor)} /> wants to call <b class="mono"><Pieces text={ask.tool ?? "an effect"} /></b></>;
    case "question":
      return <Pieces text={ask.question} />;
    case "unknown":
      return <>Did <b class="mono"><Pieces text={ask.tool ?? "this call"} /></b> happen?</>;
    case "verdict":
      return <>The gate <b><Pieces text={ask.signal} /></b> waits for a verdict</>;
    case "timer":
      return <>Waits {askLine(ask)}</>;
  }
}

/** The call as JSON, whole, with marks for characters that are not seen. */
function Call({ ask }: { ask: AskShape }) {
  return (
    <div class="call">
      <span class="mono call-name"><Pieces text={ask.tool ?? ""} /></span>
      <Text text={JSON.stringify(ask.arguments, null, 2)} isCode lines={200} />
    </div>
  );
}

function Origins({ origins }: { origins: readonly string[] }) {
  if (origins.length === 0) return <>nothing</>;
  return (
    <span class="origins">
      {origins.map((each) => {
        const isForeign = FOREIGN.some((name) => each === name || each.startsWith(`${name}:`));
        return (
          <span key={each} class={isForeign ? "origin warn" : "origin"} title={isForeign ? "others write this: it may try to persuade" : undefined}>
            {isForeign && <Icon name="warn" />}
            <Pieces text={each} />
          </span>
        );
      })}
    </span>
  );
}

// ── answering ────────────────────────────────────────────────────────────────────────────────

type Way = "" | "correct" | "deny";

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

function ApprovalActs({ ask, act }: ActsProps) {
  const send = useSend(ask, act);
  const [way, setWay] = useState<Way>("");
  const [edited, setEdited] = useState(() => JSON.stringify(ask.arguments, null, 2));
  const [words, setWords] = useState("");
  const parsed = parseJson(edited);
  const error = "error" in parsed ? parsed.error : typeof parsed.value !== "object" || parsed.value === null || Array.isArray(parsed.value) ? "All arguments, as one JSON object." : "";
  const isChanged = !error && "value" in parsed && JSON.stringify(parsed.value) !== JSON.stringify(ask.arguments);
  return (
    <form
      class="ask-answer"
      onSubmit={(event) => {
        event.preventDefault();
        if (way === "correct" && !error && "value" in parsed) send("approve", { ask: ask.id, edited: parsed.value, note: words });
        else if (way === "deny") send("deny", { ask: ask.id, reason: words });
      }}
    >
      {act.failure && <Refused failure={act.failure} />}
      {way === "" && (
        <div class="acts">
          <button type="button" class="button first big" data-act="grant" disabled={act.isBusy || ask.is_late} onClick={() => send("approve", { ask: ask.id, note: "" })}>
            <Icon name="passed" /> Grant <kbd class="key" aria-hidden="true">a</kbd>
          </button>
          <button type="button" class="button big" disabled={act.isBusy || ask.is_late} onClick={() => setWay("correct")}>Grant corrected…</button>
          <button type="button" class="button big" data-act="deny" disabled={act.isBusy} onClick={() => setWay("deny")}>
            <Icon name="failed" class="bad" /> Deny… <kbd class="key" aria-hidden="true">d</kbd>
          </button>
        </div>
      )}
      {way === "correct" && (
        <>
          <Field label="Arguments that you allow instead" value={edited} onInput={setEdited} rows={Math.min(16, edited.split("\n").length + 1)} isCode error={error} />
          <Field label="Note (on record)" value={words} onInput={setWords} />
          <div class="acts">
            <button type="submit" class="button first big" disabled={act.isBusy || !!error || !isChanged}>Grant this instead</button>
            <button type="button" class="button plain big" onClick={() => setWay("")}>Back</button>
            {!isChanged && !error && <span class="faint">nothing is changed yet</span>}
          </div>
        </>
      )}
      {way === "deny" && (
        <>
          <Field label="Reason (the agent reads it)" value={words} onInput={setWords} rows={2} />
          <div class="acts">
            <button type="submit" class="button danger big" disabled={act.isBusy}>Deny it</button>
            <button type="button" class="button plain big" onClick={() => setWay("")}>Back</button>
          </div>
        </>
      )}
    </form>
  );
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
