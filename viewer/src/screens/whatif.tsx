/** What if: change one thing at a place, see what will be asked again, run it in a branch. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { useAnswer } from "../base/answer";
import { countText } from "../base/format";
import { usePage } from "../base/page";
import { go, hrefOf, placeText, route, sessionRoute } from "../base/router";
import { plainText } from "../base/text";
import { Icon } from "../parts/icons";
import { Empty, Shows } from "../parts/states";
import { Line, Pieces } from "../parts/text";
import type { EventShape, FamilyShape, Json, NewRun, PlaceShape, RunRow, RunShape, StepDetail } from "../shapes";
import type { Source } from "../source";
import { StepLine } from "../workbench/steps";
import { Field, Refused, useActing, useReadOnly } from "./acting";
import { nameOf } from "./ask";
import { countedWords, lookAhead, runAfter, type Ahead } from "./ahead";
import { noteRun, toldRuns } from "./live";
import { RunLine } from "./run_line";
import { SessionHead } from "./session_head";

const REPLACEABLE: Readonly<Record<string, string>> = {
  MessageSaid: "The message", ModelReplied: "The reply", ToolReturned: "The tool's result", ToolFailed: "The tool's result",
  FactRecorded: "The fact, as JSON", QuestionAnswered: "The answer",
};

export interface Replaceable {
  readonly seq: number;
  readonly label: string;
  readonly text: string;
  readonly isJson: boolean;
}

/** Return the event of a step whose words can be other ones; null: there is none. */
export function replaceableOf(events: readonly EventShape[], detail: StepDetail): Replaceable | null {
  const event = events.findLast((each) => each.kind in REPLACEABLE);
  if (!event) return null;
  const body = event.body as { readonly [key: string]: Json } | null;
  const isJson = event.kind === "FactRecorded";
  const value = isJson ? JSON.stringify(body?.["value"] ?? null, null, 2) : event.kind === "QuestionAnswered" ? String(body?.["answer"] ?? "") : detail.parts.filter((part) => part.type === "text" || part.type === "data").map((part) => part.text).join("\n");
  return { seq: event.seq, label: REPLACEABLE[event.kind]!, text: value || detail.failure, isJson };
}

/** Branches in which something was said anew, by what was asked for: their program may have been wrong. */
const forksMade = new Map<string, string>();

/** Fork at a place and say something there. Asked for once more, it is the branch that no run has begun in yet. */
async function forkAnew(source: Source, place: string, label: string, text: string): Promise<string> {
  const key = JSON.stringify([place, label, text]);
  const known = forksMade.get(key);
  const found = known ? await source.session(known).get().catch(() => null) : null;
  if (found && found.runs.every((run) => run.first <= (found.parent?.place ?? 0))) return found.short;
  const fork = await source.act(place, "fork", { label: label || null });
  await source.act(fork.short, "say", { text });
  forksMade.set(key, fork.short);
  return fork.short;
}

function toggled(names: ReadonlySet<string>, name: string, isIn: boolean): ReadonlySet<string> {
  const next = new Set(names);
  if (isIn) next.add(name);
  else next.delete(name);
  return next;
}

export function WhatIf() {
  const { source, model } = usePage();
  const now = route.value;
  const session = now.screen === "whatif" ? now.session : "@";
  const seq = now.screen === "whatif" ? now.seq : null;
  const at = useAnswer(source.session(placeText(session, seq)));
  const place = at.value;
  const detail = useAnswer(place ? source.detail(place.id, place.place) : null);
  return (
    <main class="screen scroll sheet is-wide">
      <SessionHead session={placeText(session, seq)} screen="What if">
        <p class="quiet sheet-lead">Up to here it goes by the record; what comes after is asked again, in a branch. The session itself is not touched.</p>
      </SessionHead>
      <Shows shown={at}>
        {(found) => (
          <Shows shown={detail}>
            {(step) => <WhatIfForm key={`${found.id}@${found.place}`} log={found.id} seq={found.place} short={found.short} detail={step} parent={found.parent} family={model.family.value?.branches.some((each) => each.log === found.id) ? model.family.value : null} />}
          </Shows>
        )}
      </Shows>
    </main>
  );
}

interface FormProps {
  readonly log: string;
  readonly seq: number;
  readonly short: string;
  readonly detail: StepDetail;
  readonly parent: PlaceShape | null;
  readonly family: FamilyShape | null;
}

function WhatIfForm({ log, seq, short, detail, parent, family }: FormProps) {
  const { source } = usePage();
  const { step } = detail;
  const readOnly = useReadOnly();
  const events = useAnswer(source.events(step.log, step.first, Math.min(500, step.seq - step.first + 1)));
  const own = useMemo(() => events.value?.events.filter((event) => step.events.includes(event.seq)) ?? [], [events.value]);
  const replaceable = useMemo(() => replaceableOf(own, detail), [own, detail]);
  const prompt = useAnswer(source.prompt(`${log}@${seq}`));
  const [words, setWords] = useState<string | null>(null);
  const [instruction, setInstruction] = useState<string | null>(null);
  const [chosen, setModel] = useState("");
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const [effects, setEffects] = useState<"ask" | "live">("ask");
  const [label, setLabel] = useState("");
  const [program, setProgram] = useState("");
  const act = useActing<RunShape>();
  // A message that was there before the run began is said anew, and the program is run on it.
  const runs = useAnswer(source.session(log)).value?.runs ?? [];
  const firstRun = replaceable && runAfter(runs, replaceable.seq);
  const [ahead, setAhead] = useState<Ahead | null>(null);
  const lookFrom = words !== null && replaceable ? replaceable.seq : seq;
  useEffect(() => {
    let isOver = false;
    void lookAhead(source, family, log, lookFrom).then((found) => !isOver && setAhead(found));
    return () => {
      isOver = true;
    };
  }, [log, lookFrom, family]);
  const isAdded = firstRun !== null && replaceable !== null && firstRun.first > replaceable.seq + 1;
  const isWordsChanged = words !== null && replaceable !== null && words !== replaceable.text;
  const isInstructionChanged = !(firstRun && isWordsChanged) && instruction !== null && instruction !== prompt.value?.instruction;
  const hasNoInstruction = firstRun !== null && isWordsChanged;
  const tools = hasNoInstruction ? [] : (prompt.value?.tools ?? []);
  const isToolsChanged = tools.some((tool) => left.has(tool.name));
  const isChanged = isWordsChanged || isInstructionChanged || isToolsChanged || chosen !== "";
  const run = act.done ? (toldRuns.value.get(act.done.id) ?? act.done) : null;
  const branch = run?.branch ?? null;
  useEffect(() => {
    if (branch) go({ screen: "compare", left: short, right: branch });
  }, [branch]);
  const error = run?.error?.error ?? act.failure?.kind ?? "";
  const message = run?.error?.message ?? act.failure?.message ?? "";
  /** Fork before the message, or before the run if something came between; say it, and run. */
  const sayAnew = async (said: Replaceable, began: RunRow) => {
    const at = isAdded ? began.first - 1 : said.seq - 1;
    const fork = await forkAnew(source, `${log}@${at}`, label, words ?? "");
    const body: NewRun = { verb: "run", session: fork, program: program || began.workflow, ...(chosen ? { model: chosen } : {}) };
    const made = await source.post<RunShape>("/api/runs", body as unknown as Json);
    noteRun(made);
    go({ screen: "compare", left: short, right: fork });
    return made;
  };
  const start = () =>
    void act.start(async () => {
      if (firstRun && isWordsChanged && replaceable) return sayAnew(replaceable, firstRun);
      const last = firstRun ? firstRun.first : isWordsChanged && replaceable ? Math.max(seq, replaceable.seq) : seq;
      const body: NewRun = {
        verb: "whatif",
        session: `${log}@${last}`,
        effects,
        ...(isWordsChanged && replaceable ? { replace: { [String(replaceable.seq)]: words } } : {}),
        ...(isInstructionChanged ? { instruction } : {}),
        ...(chosen ? { model: chosen } : {}),
        ...(isToolsChanged ? { tools: { [nameOf(prompt.value!.agent)]: tools.map((tool) => tool.name).filter((name) => !left.has(name)) } } : {}),
        ...(label ? { label } : {}),
        ...(program ? { program } : {}),
      };
      const made = await source.post<RunShape>("/api/runs", body as unknown as Json);
      noteRun(made);
      return made;
    });
  return (
    <div class="whatif">
      <form
        class="whatif-form"
        onSubmit={(event) => {
          event.preventDefault();
          if (isChanged) start();
        }}
      >
        <div class="whatif-step">
          <a class={`step-row is-${step.type} was-${step.state}`} href={hrefOf(sessionRoute(step.log, step.seq))}><StepLine step={step} /></a>
        </div>
        {replaceable ? (
          <Field label={`${replaceable.label} @${replaceable.seq}`} value={words ?? replaceable.text} onInput={setWords} rows={Math.max(3, Math.min(14, (words ?? replaceable.text).split("\n").length + 1))} isCode={replaceable.isJson || step.type === "tool"} hint={step.type === "reply" && detail.calls.length > 0 ? "With other words the reply calls no tools." : firstRun && isAdded ? "The run began later, and more came between: your words are said after it, in a branch, and the program is run anew." : firstRun ? "The run began after it: it is said anew in a branch, and the program is run on it." : undefined} />
        ) : (
          events.value && <p class="faint">This step says nothing that can be other words: change the instruction, the tools or the model, or choose a message, a reply, a tool call or a fact.</p>
        )}
        {!hasNoInstruction && <Field label="Instruction of the agents, from here on" value={instruction ?? prompt.value?.instruction ?? ""} onInput={setInstruction} rows={4} placeholder={prompt.error ? "No prompt was sent before this place." : ""} hint={prompt.value ? <>every agent that is asked from here on is given it; <Pieces text={nameOf(prompt.value.agent)} /> had this one</> : undefined} />}
        {tools.length > 0 && (
          <fieldset class="radios">
            <legend class="label">Tools of <Pieces text={nameOf(prompt.value!.agent)} />, from here on</legend>
            <div class="whatif-tools">
              {tools.map(({ name, description }) => (
                <label key={name} class="radio" title={plainText(description)}>
                  <input type="checkbox" checked={!left.has(name)} onChange={(event) => setLeft(toggled(left, name, !event.currentTarget.checked))} />
                  <span class="mono"><Pieces text={name} /></span>
                </label>
              ))}
            </div>
            <p class="field-hint faint">A tool that is left out is refused if the model calls it. Other tools are code: give them with <code>plait.whatif(…, tools=…)</code>. To change what a call returned, choose its step.</p>
          </fieldset>
        )}
        <div class="whatif-two">
          <Field label="Model, from here on" value={chosen} onInput={setModel} placeholder={prompt.value?.model ?? "as it was"} isCode />
          <Field label="Name of the branch" value={label} onInput={setLabel} placeholder="none" />
        </div>
        {hasNoInstruction ? (
          <p class="warn">The program is run as it always is: effects beyond the files ask first only if its own policies say so.</p>
        ) : (
          <fieldset class="radios">
            <legend class="label">Effects beyond the files</legend>
            <label class="radio"><input type="radio" name="effects" checked={effects === "ask"} onChange={() => setEffects("ask")} /><span>ask first</span></label>
            <label class="radio"><input type="radio" name="effects" checked={effects === "live"} onChange={() => setEffects("live")} /><span>happen as in the run</span></label>
          </fieldset>
        )}
        <Field label="Program (may be empty)" value={program} onInput={setProgram} placeholder={firstRun?.workflow || "FILE.py:NAME"} isCode error={error === "NeedsWorkflow" ? "The run's program cannot be found by itself: name its file and the workflow in it." : ""} hint="the file and the workflow in it, seen from the server's folder; empty: the run's own" />
        {act.failure && <Refused failure={act.failure} />}
        {run && <RunLine run={run} />}
        {message.includes("is a branch of the run") && parent && (
          <p>
            <a class="button" href={hrefOf({ screen: "whatif", session: parent.id, seq: parent.place })}>Ask it where the run made this branch</a>
          </p>
        )}
        {readOnly ? (
          <p class="faint">{readOnly}</p>
        ) : (
          <div class="acts">
            <button type="submit" class="button first big" disabled={!isChanged || act.isBusy || run?.state === "running"}><Icon name="play" /> {firstRun && !isInstructionChanged && !isToolsChanged && !(chosen && !isWordsChanged) ? (isAdded ? "Fork before the run, and say it anew" : "Fork before it, and say it anew") : "Run it in a branch"}</button>
            <a class="button plain big" href={hrefOf(sessionRoute(short, seq))}>Back</a>
            {!isChanged && <span class="faint">nothing is changed yet</span>}
          </div>
        )}
      </form>
      <AheadView ahead={ahead} effects={hasNoInstruction ? "live" : effects} model={chosen} />
    </div>
  );
}

function AheadView({ ahead, effects, model }: { ahead: Ahead | null; effects: "ask" | "live"; model: string }) {
  if (!ahead) return <aside class="whatif-ahead" aria-label="What will happen" />;
  const asked = [...ahead.models.values()].reduce((sum, count) => sum + count, 0);
  const outward = ahead.calls.filter((call) => call.isOutward);
  const inward = ahead.calls.filter((call) => !call.isOutward);
  if (asked + ahead.calls.length === 0)
    return (
      <aside class="whatif-ahead" aria-label="What will happen">
        <h2 class="label">What will happen</h2>
        <Empty>Nothing came after this place: the branch goes on live from here.</Empty>
      </aside>
    );
  return (
    <aside class="whatif-ahead" aria-label="What will happen">
      <h2 class="label">What came after this place, and is done again</h2>
      <dl class="pairs">
        <dt>asked live</dt>
        <dd>
          {countText(asked, "model call")}
          {[...ahead.models].map(([name, count]) => <div key={name} class="faint"><span class="mono"><Pieces text={model || name} /></span>{` ×${count}`}</div>)}
        </dd>
        {inward.length > 0 && (
          <>
            <dt>run again</dt>
            <dd><span class="mono"><Pieces text={countedWords(inward.map((call) => call.tool))} /></span><div class="faint">in a workspace of its own</div></dd>
          </>
        )}
        <dt class={outward.length && effects === "live" ? "bad" : outward.length ? "warn" : ""}>{effects === "ask" ? "ask first" : "happen again"}</dt>
        <dd>
          {outward.length === 0 ? (
            "no effect reached beyond the files"
          ) : (
            <ul>
              {outward.slice(0, 20).map((call) => (
                <li key={`${call.log}@${call.seq}`} class="whatif-effect">
                  <b class="mono"><Pieces text={call.tool} /></b> <Line text={JSON.stringify(call.arguments) ?? ""} class="mono quiet" /> <span class="faint">{call.effect.replaceAll("_", " ")}</span>
                </li>
              ))}
              {outward.length > 20 && <li class="faint">{`and ${outward.length - 20} more`}</li>}
            </ul>
          )}
        </dd>
      </dl>
      <p class="faint">As the record has it. A changed run may ask for other things; effects beyond the files {effects === "ask" ? "wait in the inbox first." : "happen as the program has them."}</p>
      {ahead.isCut && <p class="faint">There is more behind it than was read.</p>}
    </aside>
  );
}
