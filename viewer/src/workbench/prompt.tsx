/** The tab Prompt: what the model was sent at this place, and what it wrote. */

import type { ComponentChildren } from "preact";
import { useAnswer } from "../base/answer";
import { countText } from "../base/format";
import { usePage } from "../base/page";
import { hrefOf, sessionRoute } from "../base/router";
import type { Json, PromptShape } from "../shapes";
import type { Doc } from "../source";
import { Icon } from "../parts/icons";
import { JsonView } from "../parts/json";
import { memo } from "../parts/memo";
import { Empty, Shows } from "../parts/states";
import { Line, Pieces, Text } from "../parts/text";
import { Parts, useDetail } from "./step";

export function PromptPanel() {
  const { model, source } = usePage();
  const place = model.cursor.value;
  const shown = useAnswer(place ? source.prompt(model.revision(place)) : null, model.isGliding.value ? 90 : 0);
  if (shown.error?.status === 404 && shown.error.kind !== "NotInFile")
    return (
      <Empty>
        <p class="state-head">No model was asked before this place.</p>
        <p>Go on to the first reply, with → or on the strip.</p>
      </Empty>
    );
  return (
    <div class="panel-scroll scroll" tabIndex={0}>
      <Shows shown={shown}>{(prompt) => <PromptView prompt={prompt} />}</Shows>
    </div>
  );
}

const PromptView = memo(function PromptView({ prompt }: { prompt: PromptShape }) {
  const { model } = usePage();
  const fresh = prompt.new_from;
  const turns = prompt.turns.map((turn, index) => ({ turn: turn as Doc, index })).reverse();
  const newer = turns.filter((each) => each.index >= fresh);
  const older = turns.filter((each) => each.index < fresh);
  return (
    <article class="detail">
      <header class="detail-head">
        <h2><b><Pieces text={prompt.agent.replace(/^agent:/, "")} /></b> asks <Pieces text={prompt.model} /></h2>
        <p class="detail-figures">
          <a class="mono" href={hrefOf(sessionRoute(prompt.session, prompt.place, { tab: "prompt" }))}>
            {model.placeName({ log: prompt.session, seq: prompt.place })}
          </a>
          {prompt.as_sent ? (
            <span class="good prompt-check" title={prompt.digest}>
              <Icon name="passed" /> exactly as sent: the digest matches
            </span>
          ) : (
            <span class="bad">not as sent: something that was shown then is gone or changed</span>
          )}
          <span>{countText(prompt.turns.length, "turn")}</span>
        </p>
      </header>
      <Wrote prompt={prompt} />
      <section class="block">
        <h3 class="label">{older.length ? "Saw, new since its last prompt" : "Saw"}</h3>
        {newer.map(({ turn, index }, order) => <Turn key={index} turn={turn} number={index + 1} isOpen={order < 6} />)}
        {newer.length === 0 && <p class="faint">nothing new</p>}
      </section>
      {older.length > 0 && (
        <section class="block">
          <h3 class="label">Saw before</h3>
          {older.slice(0, 100).map(({ turn, index }) => <Turn key={index} turn={turn} number={index + 1} isOpen={false} />)}
          {older.length > 100 && <p class="faint">{`and ${older.length - 100} turns before`}</p>}
        </section>
      )}
      <Fold title="Instruction" isOpen={prompt.instruction.length < 800}>
        <Text text={prompt.instruction || "none"} lines={40} />
      </Fold>
      <Fold title={countText(prompt.tools.length, "tool")} isOpen={false}>
        {prompt.tools.map((tool, index) => (
          <div key={index} class="prompt-tool">
            <p><b class="mono"><Pieces text={tool.name} /></b> <Pieces text={tool.description} /></p>
            <JsonView value={tool.schema} />
          </div>
        ))}
      </Fold>
      {prompt.parameters !== null && Object.keys(prompt.parameters).length > 0 && (
        <Fold title="Parameters" isOpen={false}><JsonView value={prompt.parameters} isBare /></Fold>
      )}
      {prompt.output !== null && (
        <Fold title="Form of the reply" isOpen={false}><JsonView value={prompt.output} isBare /></Fold>
      )}
      <Fold title={prompt.left_out.length ? `${countText(prompt.left_out.length, "event")} left out` : "Nothing was left out"} isOpen={false}>
        {prompt.left_out.slice(0, 200).map((each, index) => (
          <p key={index} class="detail-line">
            <a class="link mono" href={hrefOf(sessionRoute(each.session, each.place))}>{model.placeName({ log: each.session, seq: each.place })}</a>
            <span class="faint">{each.kind}</span> <Line text={each.why} />
          </p>
        ))}
      </Fold>
    </article>
  );
});

/** What the model wrote: the reply that the step at the cursor is, or was decided in. */
function Wrote({ prompt }: { prompt: PromptShape }) {
  const { source } = usePage();
  const here = useDetail();
  const reply = here.value?.step.type === "reply" ? here.value : undefined;
  const asked = useAnswer(reply ? null : source.detail(prompt.session, prompt.place));
  const detail = reply ?? asked.value;
  if (!detail || detail.step.type !== "reply" || detail.parts.length === 0) return null;
  return (
    <section class="block">
      <h3 class="label">Wrote</h3>
      <Parts parts={detail.parts} />
      {detail.calls.length > 0 && <p class="quiet">asks for <span class="mono"><Pieces text={detail.calls.join(", ")} /></span></p>}
    </section>
  );
}

function Fold({ title, isOpen, children }: { title: string; isOpen: boolean; children: ComponentChildren }) {
  return (
    <details class="block fold" open={isOpen}>
      <summary class="label">{title}</summary>
      {children}
    </details>
  );
}

type Row = { readonly who: string; readonly parts: readonly Doc[]; readonly calls: readonly Doc[]; readonly results: readonly Doc[] };

function rowsOf(value: Json | undefined): readonly Doc[] {
  return Array.isArray(value) ? (value as readonly Doc[]) : [];
}

function readTurn(turn: Doc): Row {
  const results = rowsOf(turn["results"]);
  const calls = rowsOf(turn["calls"]);
  const kind = String(turn["type"] ?? "").toLowerCase();
  const who = results.length ? "results" : kind.startsWith("answer") || calls.length ? "assistant" : "user";
  return { who, parts: rowsOf(turn["parts"]), calls, results };
}

function partText(part: Doc): string {
  if (typeof part["text"] === "string") return part["text"];
  return JSON.stringify(part);
}

function textOf(row: Row): string {
  const said = row.parts.map(partText).join(" ");
  const returned = row.results.flatMap((each) => rowsOf(each["parts"]).map(partText)).join(" ");
  const called = row.calls.map((each) => String(each["tool"] ?? "")).join(", ");
  return [said, called && `calls ${called}`, returned].filter(Boolean).join(" ");
}

function Turn({ turn, number, isOpen }: { turn: Doc; number: number; isOpen: boolean }) {
  const row = readTurn(turn);
  return (
    <details class="turn" open={isOpen}>
      <summary>
        <span class="turn-number">{number}</span>
        <b>{row.who}</b>
        <Line text={textOf(row).slice(0, 200)} class="faint turn-glance" />
      </summary>
      <div class="turn-body">
        {row.parts.map((part, index) => <Text key={index} text={partText(part)} lines={24} />)}
        {row.calls.map((call, index) => (
          <div key={index} class="turn-call">
            <span class="quiet">calls</span> <b class="mono"><Pieces text={String(call["tool"] ?? "")} /></b>
            <JsonView value={(call["arguments"] ?? {}) as Json} isBare />
          </div>
        ))}
        {row.results.map((result, index) => (
          <div key={index} class="turn-call">
            <b class="mono"><Pieces text={String(result["tool"] ?? "")} /></b>{" "}
            <span class={result["failed"] ? "bad" : "quiet"}>{result["failed"] ? "failed" : "returned"}</span>
            {rowsOf(result["parts"]).map((part, at) => <Text key={at} text={partText(part)} isCode ansi lines={24} keep="last" />)}
          </div>
        ))}
      </div>
    </details>
  );
}
