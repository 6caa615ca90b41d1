/** The tabs Why and Influence: where something comes from, and what became of it. */

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { useAnswer } from "../base/answer";
import type { Model } from "../base/model";
import { usePage } from "../base/page";
import { go, hrefOf, route, sessionRoute, type SessionRoute } from "../base/router";
import type { SeqRef, TraceShape, TraceStep } from "../shapes";
import { plainText } from "../base/text";
import { memo } from "../parts/memo";
import { Empty, Shows } from "../parts/states";
import { Line, Pieces } from "../parts/text";
import { laneIndex } from "./strip_draw";
import { plainTrace, type PlainLine, type StepKey } from "./trace_plain";

type Form = "list" | "graph" | "events";
const form = signal<Form>("list");
const FORMS: readonly [Form, string][] = [["list", "List"], ["graph", "Graph"], ["events", "Every event"]];
const ROWS_MAX = 300;

export function WhyPanel({ way }: { way: "why" | "influence" }) {
  const { model, source } = usePage();
  const now = route.value as SessionRoute;
  const place = model.cursor.value;
  const answer = place ? source[way](model.revision(place), now.about) : null;
  const shown = useAnswer(answer, model.isGliding.value ? 90 : 0);
  return (
    <div class="panel-scroll scroll" tabIndex={0}>
      <div class="why-head">
        <AboutField now={now} />
        <div class="choice" role="group" aria-label="Form">
          {FORMS.map(([name, words]) => (
            <button key={name} type="button" aria-pressed={form.value === name} onClick={() => (form.value = name)}>
              {words}
            </button>
          ))}
        </div>
      </div>
      <Shows shown={shown}>{(trace) => <TraceView trace={trace} way={way} />}</Shows>
    </div>
  );
}

function AboutField({ now }: { now: SessionRoute }) {
  return (
    <form
      class="why-about"
      onSubmit={(event) => {
        event.preventDefault();
        const about = String(new FormData(event.currentTarget).get("about") ?? "").trim();
        go({ ...now, about });
      }}
    >
      <label class="unseen" for="about">A line of a file, a fact, a verdict, an event or a text</label>
      <input id="about" name="about" class="input" key={now.about} defaultValue={now.about} placeholder="this step, or cart.py:6, a fact, a text" autocomplete="off" spellcheck={false} />
    </form>
  );
}

const TraceView = memo(function TraceView({ trace, way }: { trace: TraceShape; way: "why" | "influence" }) {
  if (trace.steps.length <= 1 && way === "influence")
    return (
      <Empty>
        <p class="state-head">Nothing has followed from it so far.</p>
      </Empty>
    );
  return (
    <article class="detail">
      <p class="why-line quiet">
        {way === "why" ? "Where " : "What became of "}
        <b><Pieces text={trace.about} /></b>
        {way === "why" ? " comes from" : ""}
      </p>
      {form.value === "list" && <TraceList trace={trace} />}
      {form.value === "graph" && <TraceGraph trace={trace} />}
      {form.value === "events" && <EventList trace={trace} />}
      {!trace.complete && <p class="faint">There is more than is shown.</p>}
      <p class="why-legend faint">
        <i class="why-key" /> decided it
        <i class="why-key is-context" /> was only in the context of the decision
      </p>
    </article>
  );
});

/** Fold a trace into steps, and ask for their words. */
function usePlain(trace: TraceShape): readonly PlainLine[] {
  const { model } = usePage();
  const version = model.outlineVersion.value;
  const lines = useMemo(() => plainTrace(trace.steps, (step) => keyOf(model, step)), [trace, version]);
  useEffect(() => {
    for (const { key } of lines) if (key !== null) model.need(key, key + 1);
  }, [lines]);
  return lines;
}

function keyOf(model: Model, step: TraceStep): StepKey {
  const place = { log: step.session, seq: step.seq };
  const row = model.rowOf(place);
  return row !== null && (step.kind === "ModelAsked" || !model.isInStep(place)) ? "inner" : row;
}

/** A step in plain words: as the list of steps has it, else as the event says it. */
function lineWords(model: Model, line: PlainLine): { verb: string; says: string } {
  const step = line.key === null ? null : model.stepAt(line.key);
  if (!step) return { verb: "", says: line.step.says };
  if (step.type === "message" || step.type === "reply") return { verb: `${step.actor.replace(/^\w+:/, "")}:`, says: step.says };
  return { verb: step.verb, says: [step.subject, step.says].filter(Boolean).join("  ") };
}

export function TraceList({ trace }: { trace: TraceShape }) {
  const { model } = usePage();
  const lines = usePlain(trace);
  void model.version.value;
  return (
    <ol class="trace">
      {lines.slice(0, ROWS_MAX).map((line, index) => (
        <li key={index} class={`is-${line.step.relation}`} style={{ "--depth": Math.min(line.depth, 12) }}>
          <span class="trace-how">{line.step.how}</span>
          <PlainWords line={line} />
        </li>
      ))}
      {lines.length > ROWS_MAX && <li class="faint">{`and ${lines.length - ROWS_MAX} more`}</li>}
    </ol>
  );
}

function PlainWords({ line }: { line: PlainLine }) {
  const { model } = usePage();
  const { verb, says } = lineWords(model, line);
  const events = [line.step, ...line.others];
  const asked = line.step.relation === "context" ? undefined : events.find((each) => each.kind === "ModelAsked");
  const { reason, relation, at, actor } = line.step;
  // An event of no step is the word of somebody in an inbox, or of another session: say whose.
  const isTold = line.key === null && !says.includes(actor);
  const isDecision = relation === "subject" || relation === "decision";
  const placement = isDecision ? line.step.placement : "";
  return (
    <div class="trace-words">
      <TraceLink at={at}>
        {verb && <b><Pieces text={`${verb} `} /></b>}
        <Pieces text={says.slice(0, 240)} />
        {says.length > 240 && "…"}
        {isTold && <>, by <b><Pieces text={actor.replace(/^\w+:/, "")} /></b></>}
      </TraceLink>
      <span class="trace-place mono">{placeWords(model, line.step)}</span>
      {(reason || placement || asked) && (
        <span class="trace-more faint">
          {reason && <>“<Pieces text={reason.slice(0, 300)} />” </>}
          {placement && <>ran in <Pieces text={placement} /> </>}
          {asked && (
            <>
              decided by <Pieces text={asked.actor.replace(/^agent:/, "")} />,{" "}
              <a class="link" href={hrefOf(sessionRoute(asked.session, asked.seq, { tab: "prompt" }))}>what it had seen</a>
            </>
          )}
        </span>
      )}
    </div>
  );
}

/** A link to the place that shows an event; plain words if no page does. */
function TraceLink({ at, tab, children }: { at: SeqRef | null; tab?: "raw"; children: ComponentChildren }) {
  if (!at) return <span class="trace-says">{children}</span>;
  return <a class="trace-says" href={hrefOf(sessionRoute(at.log, at.seq, tab ? { tab } : {}))}>{children}</a>;
}

/** The place of an event; one in an inbox has none of its own. */
function placeWords(model: Model, step: TraceStep): string {
  if (!step.at) return "not in this copy";
  const isOwn = step.at.log === step.session && step.at.seq === step.seq;
  return isOwn ? model.placeName(step.at) : `inbox of ${model.placeName(step.at)}`;
}

/** The trace as it is on record, event by event. */
function EventList({ trace }: { trace: TraceShape }) {
  const { model } = usePage();
  return (
    <ol class="trace">
      {trace.steps.slice(0, ROWS_MAX).map((step, index) => (
        <li key={index} class={`is-${step.relation}`} style={{ "--depth": Math.min(step.depth, 12) }}>
          <span class="trace-how">{step.how}</span>
          <div class="trace-words">
            <TraceLink at={step.at} tab="raw">
              <Pieces text={step.says.slice(0, 300)} />
            </TraceLink>
            <span class="trace-place mono">{placeWords(model, step)}</span>
          </div>
        </li>
      ))}
      {trace.steps.length > ROWS_MAX && <li class="faint">{`and ${trace.steps.length - ROWS_MAX} more`}</li>}
    </ol>
  );
}

const COLUMN = 34;
const LINE = 46;
const BOX = 380;

/** The same walk as a picture: each box below what it belongs to. The list says all of it. */
function TraceGraph({ trace }: { trace: TraceShape }) {
  const { model } = usePage();
  const lines = usePlain(trace).slice(0, 80);
  void model.version.value;
  const parents: number[] = [];
  const last: number[] = [];
  lines.forEach((line, index) => {
    parents[index] = line.depth > 0 ? (last[line.depth - 1] ?? -1) : -1;
    last[line.depth] = index;
    last.length = line.depth + 1;
  });
  const x = (index: number) => 8 + lines[index]!.depth * COLUMN;
  const y = (index: number) => 8 + index * LINE;
  const width = 16 + Math.max(...lines.map((line) => line.depth), 0) * COLUMN + BOX;
  const height = lines.length * LINE + 8;
  const colorAt = (step: TraceStep) => laneIndex(model.family.value?.branches.find((each) => each.log === step.session)?.color ?? 0);
  return (
    <div class="trace-graph scroll" tabIndex={0} role="group" aria-label="The walk as a graph; the list says the same">
      <div class="trace-canvas" style={{ width: `${width}px`, height: `${height}px` }}>
        <svg width={width} height={height} aria-hidden="true">
          {lines.map(({ step }, index) => {
            const from = parents[index]!;
            if (from < 0) return null;
            const x1 = x(from) + 16;
            const y2 = y(index) + 18;
            return <path key={index} class={`is-${step.relation}`} d={`M${x1} ${y(from) + 36}V${y2 - 8}Q${x1} ${y2} ${x1 + 8} ${y2}H${x(index)}`} />;
          })}
        </svg>
        {lines.map((line, index) => {
          const { step } = line;
          const { verb, says } = lineWords(model, line);
          return (
          <a
            key={index}
            class={`trace-box is-${step.relation}`}
            {...(step.at ? { href: hrefOf(sessionRoute(step.at.log, step.at.seq)) } : {})}
            title={`${step.how}: ${plainText(`${verb} ${says}`, 300)}`}
            style={{ left: `${x(index)}px`, top: `${y(index)}px`, width: `${BOX}px`, borderLeftColor: `var(--lane-${colorAt(step)})` }}
          >
            <span class="faint">{`${step.how} · ${placeWords(model, step)}`}</span>
            <Line text={`${verb} ${says}`} />
          </a>
          );
        })}
      </div>
    </div>
  );
}
