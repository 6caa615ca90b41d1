/** The tab Step: everything about the step at the cursor. */

import type { ComponentChildren } from "preact";
import { isBroken } from "../base/broken";
import { useAnswer } from "../base/answer";
import { verdictReason } from "../base/asks";
import { allTokens, bytesText, costText, countText, dollarsText, numberText, timeText, tookText } from "../base/format";
import { usePage } from "../base/page";
import { hrefOf, sessionRoute } from "../base/router";
import { Icon, stepIcon } from "../parts/icons";
import { JsonView } from "../parts/json";
import { memo } from "../parts/memo";
import { Empty, Shows } from "../parts/states";
import { Line, Pieces, Text } from "../parts/text";
import type { ApprovalShape, Json, PartShape, SeqRef, StepDetail, StepShape } from "../shapes";
import { DiffOfStep } from "./diff";
import { StepAsk } from "./step_ask";
import { isExpanded } from "./workbench_keys";

export function useDetail() {
  const { model, source } = usePage();
  const place = model.cursor.value;
  const step = model.step.value;
  // All events of a step are one question: ask by its last.
  const seq = step && place && step.log === place.log && step.events.includes(place.seq) ? step.seq : place?.seq;
  return useAnswer(place && seq ? source.detail(place.log, seq) : null, model.isGliding.value ? 70 : 0);
}

export function StepPanel() {
  const { model } = usePage();
  const shown = useDetail();
  if (model.rows.value?.count === 0)
    return (
      <Empty>
        <p class="state-head">Nothing has happened in this session yet.</p>
        <p>
          Say something: <code>plait send {model.branch.value?.short ?? "S"} "…"</code>
        </p>
      </Empty>
    );
  return (
    <div class="panel-scroll scroll" tabIndex={0}>
      <Shows shown={shown}>{(detail) => <Detail key={`${detail.step.log} ${detail.step.index}`} detail={detail} />}</Shows>
    </div>
  );
}

const Detail = memo(function Detail({ detail }: { detail: StepDetail }) {
  const { step } = detail;
  const isSaid = step.type === "message" || step.type === "reply";
  const hasFiles = detail.tree_after !== null && detail.tree_after !== detail.tree_before;
  const lines = isExpanded.value ? 2000 : 16;
  return (
    <article class="detail">
      <Head detail={detail} />
      {detail.ask && <StepAsk detail={detail} />}
      {detail.reason && <Block title="Reason"><Text text={detail.reason} /></Block>}
      {step.type === "verdict" && hasValue(detail.fields["detail"] ?? null) && (
        <Block title={verdictReason(detail) ? "Reason" : "Detail"}>
          {verdictReason(detail) ? <Text text={verdictReason(detail)} /> : <Arguments value={detail.fields["detail"]!} />}
        </Block>
      )}
      {detail.failure && (
        <Block title="Failure">
          <div class="bad"><Text text={detail.failure} isCode /></div>
          {detail.traceback && <Text text={detail.traceback} isCode keep="last" lines={lines} />}
        </Block>
      )}
      {detail.asked_parts.length > 0 && <Block title="Question"><Parts parts={detail.asked_parts} /></Block>}
      {hasValue(detail.arguments) && <Block title="Arguments"><Arguments value={detail.arguments} /></Block>}
      {hasFiles && (
        <Block title={countText(step.files.length, "changed file")}>
          <DiffOfStep detail={detail} />
        </Block>
      )}
      {detail.parts.length > 0 && (
        <Block title={OUTPUT_WORDS[step.type] ?? "Output"} isBare={isSaid}>
          <Parts parts={detail.parts} isOutput={step.type === "tool"} />
        </Block>
      )}
      {detail.calls.length > (step.type === "tool" ? 1 : 0) && (
        <Block title={step.type === "tool" ? "Asked for in one reply" : "Asks for"}>
          <p class="mono"><Pieces text={detail.calls.join(", ")} /></p>
        </Block>
      )}
      {detail.approvals.length > 0 && <Block title="Approval"><Approvals approvals={detail.approvals} step={step} /></Block>}
      {detail.attempts.length > 1 && (
        <Block title={`${detail.attempts.length} attempts`}>
          {detail.attempts.map((each) => (
            <p key={each.seq} class="detail-line">
              <span class="faint">{each.number}</span> <span class={each.state === "failed" ? "bad" : ""}>{each.state}</span>{" "}
              <Line text={each.words} /> <span class="faint">{each.took_us !== null ? tookText(each.took_us) : ""}</span>
            </p>
          ))}
        </Block>
      )}
      {detail.kept.length > 0 && <Block title="Kept as evidence, not shown to a model"><Parts parts={detail.kept} isOutput /></Block>}
      {step.links.length > 0 && <Block title={LINK_WORDS[step.type] ?? "Linked"}><Links links={step.links} /></Block>}
      <Facts detail={detail} />
    </article>
  );
});

const OUTPUT_WORDS: Partial<Record<StepShape["type"], string>> = { message: "Message", reply: "Reply", question: "Answer", tool: "Output" };
const LINK_WORDS: Partial<Record<StepShape["type"], string>> = { fork: "Forked from", merge: "Merged", rewind: "Back to" };

function hasValue(value: Json): boolean {
  if (value === null || value === undefined) return false;
  return typeof value !== "object" || Object.keys(value).length > 0;
}

function Block({ title, children, isBare = false }: { title: string; children: ComponentChildren; isBare?: boolean }) {
  return (
    <section class="block">
      {!isBare && <h3 class="label">{title}</h3>}
      {children}
    </section>
  );
}

function Head({ detail }: { detail: StepDetail }) {
  const { model } = usePage();
  const { step } = detail;
  const isSaid = step.type === "message" || step.type === "reply";
  const words = isSaid ? speaker(step) : [step.verb, step.subject].filter(Boolean).join(" ") || step.says;
  const figures: ComponentChildren[] = [
    <span key="at" class="mono">{model.placeName({ log: step.log, seq: step.seq })}</span>,
    step.path && <Pieces key="path" text={step.path} />,
    !isSaid && <Pieces key="actor" text={step.actor} />,
    detail.model && <Pieces key="model" text={detail.model} />,
    <time key="time">{timeText(step.time)}</time>,
    step.took_us !== null && tookText(step.took_us),
    step.exit_code !== null && <span key="exit" class={step.exit_code ? "bad" : ""}>{`exit ${step.exit_code}`}</span>,
    isBroken(step) && <span key="broken" class="bad">broken: its record is not what was written</span>,
    step.is_rewound && <span key="back" class="warn">a rewind went back behind it</span>,
  ].filter(Boolean);
  return (
    <header class="detail-head">
      <h2>
        <Icon name={stepIcon(step)} />
        <span>
          {step.verb && !isSaid ? (
            <>
              <b><Pieces text={step.verb} /></b> <span class={step.type === "tool" ? "mono" : ""}><Pieces text={step.subject.slice(0, 500)} /></span>
              {step.type !== "tool" && <> <Pieces text={step.says.slice(0, 300)} /></>}
            </>
          ) : (
            <b><Pieces text={words.slice(0, 500)} /></b>
          )}
        </span>
      </h2>
      <p class="detail-figures">{figures.map((each, index) => <span key={index}>{each}</span>)}</p>
    </header>
  );
}

function speaker(step: StepShape): string {
  return step.type === "reply" ? `${step.actor.replace(/^agent:/, "")} says` : step.actor;
}

/** Arguments: a long text by itself, the rest as a table. */
export function Arguments({ value }: { value: Json }) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return <JsonView value={value} />;
  const lines = isExpanded.value ? 2000 : 12;
  return (
    <dl class="pairs arguments">
      {inOrder(value).map(([key, each]) => [
        <dt key={`${key}-name`}><Pieces text={key.slice(0, 100)} /></dt>,
        <dd key={key}>
          {typeof each === "string" ? <Text text={each} isCode lines={lines} /> : <JsonView value={each as Json} />}
        </dd>,
      ])}
    </dl>
  );
}

/** Short values first: a path says more than a text, and the record has its keys in the alphabet. */
function inOrder(value: { readonly [key: string]: Json }): [string, Json][] {
  const isLong = (each: Json) => typeof each === "object" || (typeof each === "string" && (each.length > 60 || each.startsWith(" ") || each.includes("\n")));
  const entries = Object.entries(value);
  return [...entries.filter(([, each]) => !isLong(each)), ...entries.filter(([, each]) => isLong(each))];
}

export function Parts({ parts, isOutput = false }: { parts: readonly PartShape[]; isOutput?: boolean }) {
  const { source } = usePage();
  const lines = isExpanded.value ? 5000 : isOutput ? 24 : 80;
  return (
    <>
      {parts.map((part, index) => {
        if (part.type === "image" && part.blob)
          return <img key={index} class="part-image" src={source.blobAddress(part.blob)} alt={part.text || part.name || "an image without a description"} />;
        return (
          <div key={index} class={`part is-${part.type}`}>
            {part.type === "reasoning" && <span class="label">Thought</span>}
            {part.type === "data" ? <DataPart text={part.text} /> : <Text text={part.text || part.name} isCode={isOutput} ansi={isOutput} keep={isOutput ? "last" : "first"} lines={lines} />}
            {(part.is_cut || (part.blob && part.type === "file")) && part.blob && (
              <p>
                <a class="link" href={source.blobAddress(part.blob)} download>{`All of it, ${bytesText(part.size)}`}</a>
              </p>
            )}
          </div>
        );
      })}
    </>
  );
}

function DataPart({ text }: { text: string }) {
  try {
    return <JsonView value={JSON.parse(text) as Json} isBare />;
  } catch {
    return <Text text={text} isCode />;
  }
}

const HOW_WORDS: Readonly<Record<ApprovalShape["how"], string>> = {
  requested: "asked", granted: "granted by", corrected: "granted with corrections by", denied: "denied by", expired: "expired",
};

function Approvals({ approvals, step }: { approvals: readonly ApprovalShape[]; step: StepShape }) {
  const { model } = usePage();
  return (
    <ol>
      {approvals.map((each) => (
        <li key={each.seq} class="detail-line">
          <button type="button" class="link mono" onClick={() => model.goTo({ log: step.log, seq: each.seq })}>{`@${each.seq}`}</button>
          <span class={each.how === "denied" || each.how === "expired" ? "bad" : ""}>{HOW_WORDS[each.how]}</span>
          {each.how !== "requested" && each.how !== "expired" && <Line text={each.actor} />}
          {each.words && <span class="quiet">“<Pieces text={each.words} />”</span>}
          <span class="faint">{timeText(each.time)}</span>
          {hasValue(each.edited) && <JsonView value={each.edited} isBare />}
        </li>
      ))}
    </ol>
  );
}

function Links({ links }: { links: readonly SeqRef[] }) {
  const { model } = usePage();
  return (
    <p class="detail-line">
      {links.map((link) => (
        <a key={`${link.log}@${link.seq}`} class="link mono" href={hrefOf(sessionRoute(link.log, link.seq))}>
          <Line text={model.placeName(link)} />
        </a>
      ))}
    </p>
  );
}

const TIME_NAMES = new Set(["expires", "until", "time", "review_by", "due"]);

function isTime(name: string, value: Json): value is number {
  return TIME_NAMES.has(name) && typeof value === "number" && value > 1e15;
}

/** The small print: what is true of the step and seldom asked for. */
function Facts({ detail }: { detail: StepDetail }) {
  const { usage, step } = detail;
  const pairs: [string, ComponentChildren][] = [];
  if (detail.placement_text) pairs.push(["ran in", <Pieces text={detail.placement_text} />]);
  if (detail.effect) pairs.push(["effect class", detail.effect]);
  if (detail.version) pairs.push(["version", <Pieces text={detail.version} />]);
  if (detail.idempotency_key) pairs.push(["idempotency key", <span class="mono"><Pieces text={detail.idempotency_key} /></span>]);
  if (usage)
    pairs.push([
      "tokens",
      `${numberText(allTokens(usage))}: ${numberText(usage.input_tokens)} in${usage.cached_tokens ? ` (${numberText(usage.cached_tokens)} cached)` : ""}, ${numberText(usage.output_tokens)} out${usage.reasoning_tokens ? ` (${numberText(usage.reasoning_tokens)} thought)` : ""}`,
    ]);
  if (usage) pairs.push(["cost", costText(usage)]);
  else if (step.cost_usd !== null) pairs.push(["cost", dollarsText(step.cost_usd)]);
  if (detail.latency_us !== null) pairs.push(["answered in", tookText(detail.latency_us)]);
  for (const [name, value] of Object.entries(detail.fields))
    if (value !== null && value !== "" && !(step.type === "verdict" && name === "detail" && typeof value === "string")) pairs.push([name.replaceAll("_", " "), isTime(name, value) ? timeText(value) : typeof value === "object" ? <JsonView value={value} isFolded /> : <Text text={String(value)} lines={12} />]);
  if (hasValue(detail.delta)) pairs.push(["observed", <JsonView value={detail.delta} isFolded />]);
  if (pairs.length === 0) return null;
  return (
    <section class="block">
      <h3 class="label">More</h3>
      <dl class="pairs">
        {pairs.map(([name, value]) => [<dt key={`${name}-name`}>{name}</dt>, <dd key={name}>{value}</dd>])}
      </dl>
    </section>
  );
}
