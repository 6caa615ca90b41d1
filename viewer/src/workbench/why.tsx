/** The tabs Why and Influence: where something comes from, and what became of it. */

import { signal } from "@preact/signals";
import { useAnswer } from "../base/answer";
import { countText } from "../base/format";
import { usePage } from "../base/page";
import { go, hrefOf, route, sessionRoute, type SessionRoute } from "../base/router";
import type { TraceShape, TraceStep } from "../shapes";
import { plainText } from "../base/text";
import { memo } from "../parts/memo";
import { Empty, Shows } from "../parts/states";
import { Line, Pieces } from "../parts/text";
import { laneIndex } from "./strip_draw";

const form = signal<"list" | "graph">("list");
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
          {(["list", "graph"] as const).map((name) => (
            <button key={name} type="button" aria-pressed={form.value === name} onClick={() => (form.value = name)}>
              {name === "list" ? "List" : "Graph"}
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
      {form.value === "list" ? <TraceList trace={trace} /> : <TraceGraph trace={trace} />}
      {!trace.complete && <p class="faint">There is more than is shown.</p>}
      <p class="why-legend faint">
        <i class="why-key" /> decided it
        <i class="why-key is-context" /> was only in the context of the decision
      </p>
    </article>
  );
});

export function TraceList({ trace }: { trace: TraceShape }) {
  const steps = trace.steps.slice(0, ROWS_MAX);
  return (
    <ol class="trace">
      {steps.map((step, index) => (
        <li key={index} class={`is-${step.relation}`} style={{ "--depth": Math.min(step.depth, 12) }}>
          <span class="trace-how">{step.how}</span>
          <TraceWords step={step} />
        </li>
      ))}
      {trace.steps.length > ROWS_MAX && <li class="faint">{`and ${countText(trace.steps.length - ROWS_MAX, "more")}`}</li>}
    </ol>
  );
}

function TraceWords({ step }: { step: TraceStep }) {
  const { model } = usePage();
  return (
    <a class="trace-words" href={hrefOf(sessionRoute(step.session, step.seq))}>
      <span class="trace-says"><Pieces text={step.says.slice(0, 600)} /></span>
      <span class="trace-place mono">{model.placeName({ log: step.session, seq: step.seq })}</span>
      {(step.reason || step.placement) && (
        <span class="trace-more faint">
          {step.reason && <>“<Pieces text={step.reason.slice(0, 300)} />” </>}
          {step.placement && <>in <Pieces text={step.placement} /></>}
        </span>
      )}
    </a>
  );
}

const COLUMN = 34;
const LINE = 46;
const BOX = 380;

/** The same walk as a picture: each box below what it belongs to. The list says all of it. */
function TraceGraph({ trace }: { trace: TraceShape }) {
  const { model } = usePage();
  const steps = trace.steps.slice(0, 80);
  const parents: number[] = [];
  const last: number[] = [];
  steps.forEach((step, index) => {
    parents[index] = step.depth > 0 ? (last[step.depth - 1] ?? -1) : -1;
    last[step.depth] = index;
    last.length = step.depth + 1;
  });
  const x = (index: number) => 8 + steps[index]!.depth * COLUMN;
  const y = (index: number) => 8 + index * LINE;
  const width = 16 + Math.max(...steps.map((step) => step.depth), 0) * COLUMN + BOX;
  const height = steps.length * LINE + 8;
  const colorAt = (step: TraceStep) => laneIndex(model.family.value?.branches.find((each) => each.log === step.session)?.color ?? 0);
  return (
    <div class="trace-graph scroll" tabIndex={0} role="group" aria-label="The walk as a graph; the list says the same">
      <div class="trace-canvas" style={{ width: `${width}px`, height: `${height}px` }}>
        <svg width={width} height={height} aria-hidden="true">
          {steps.map((step, index) => {
            const from = parents[index]!;
            if (from < 0) return null;
            const x1 = x(from) + 16;
            const y2 = y(index) + 18;
            return <path key={index} class={`is-${step.relation}`} d={`M${x1} ${y(from) + 36}V${y2 - 8}Q${x1} ${y2} ${x1 + 8} ${y2}H${x(index)}`} />;
          })}
        </svg>
        {steps.map((step, index) => (
          <a
            key={index}
            class={`trace-box is-${step.relation}`}
            href={hrefOf(sessionRoute(step.session, step.seq))}
            title={`${step.how}: ${plainText(step.says, 300)}`}
            style={{ left: `${x(index)}px`, top: `${y(index)}px`, width: `${BOX}px`, borderLeftColor: `var(--lane-${colorAt(step)})` }}
          >
            <span class="faint">{`${step.how} · ${model.placeName({ log: step.session, seq: step.seq })}`}</span>
            <Line text={step.says} />
          </a>
        ))}
      </div>
    </div>
  );
}
