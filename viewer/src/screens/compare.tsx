/** Two branches side by side: what they have in common, then step by step, files, facts, cost. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useAnswer } from "../base/answer";
import { costText, countText, numberText } from "../base/format";
import { useKeys } from "../base/keys";
import { laneColor } from "../base/lanes";
import { ROW_HEIGHT } from "../base/model";
import { usePage } from "../base/page";
import { go, hrefOf, route, sessionRoute } from "../base/router";
import { Icon } from "../parts/icons";
import { JsonView } from "../parts/json";
import { Empty, Shows } from "../parts/states";
import { StatusWord } from "../parts/status";
import { Line, Text } from "../parts/text";
import { Window } from "../parts/window";
import type { AlignedStep, BranchShape, ComparisonShape, FamilyShape, Json, SeqRef, SpentShape, StepShape, ValueSides } from "../shapes";
import { FileDiffView } from "../workbench/diff";
import { StepLine } from "../workbench/steps";
import { newsCount, toldRuns } from "./live";
import { MergeDialog } from "./merge";
import { moveFocus } from "./rows";
import { RunLine } from "./run_line";

/** More rows than these are a list of its own that draws the rows in sight. */
const ROWS_DRAWN = 120;

export function Compare() {
  const { source } = usePage();
  const now = route.value;
  void newsCount.value;
  const [left, right] = now.screen === "compare" ? [now.left, now.right] : ["", ""];
  const shown = useAnswer(source.compare(left, right));
  const family = useAnswer(source.family(left));
  const [isMerging, setMerging] = useState(false);
  // A session beside itself says nothing: take the branch that was made last.
  const same = shown.value && shown.value.left.log === shown.value.right.log && shown.value.left.seq === shown.value.right.seq;
  const other = family.value?.branches.findLast((branch) => branch.log !== shown.value?.left.log)?.short ?? "";
  useEffect(() => {
    if (same && !shown.isStale && other) go({ screen: "compare", left, right: other }, "replace");
  }, [same, other]);
  useKeys([
    { key: "j", words: "next step", act: () => moveFocus(1), group: "Compare" },
    { key: "k", words: "step before", act: () => moveFocus(-1), group: "Compare" },
    { key: "s", words: "swap the sides", act: () => go({ screen: "compare", left: right, right: left }), group: "Compare" },
    { key: "m", words: "merge", act: () => setMerging(true), group: "Compare" },
    { key: "Escape", words: "back to the session", act: () => go(sessionRoute(right)), group: "Compare" },
  ], [left, right]);
  return (
    <main class="screen scroll compare">
      <Shows shown={shown}>
        {(found) => (
          <>
            <Heads found={found} family={family.value} left={left} right={right} onMerge={() => setMerging(true)} />
            <Comparison found={found} />
            {isMerging && <MergeDialog found={found} names={[nameIn(family.value, found.left), nameIn(family.value, found.right)]} onClose={() => setMerging(false)} />}
          </>
        )}
      </Shows>
    </main>
  );
}

function branchIn(family: FamilyShape | undefined, place: SeqRef): BranchShape | undefined {
  return family?.branches.find((branch) => branch.log === place.log);
}

export function nameIn(family: FamilyShape | undefined, place: SeqRef): string {
  const branch = branchIn(family, place);
  return branch ? branch.name || branch.short : place.log.slice(-12, -4);
}

interface HeadsProps {
  readonly found: ComparisonShape;
  readonly family: FamilyShape | undefined;
  readonly left: string;
  readonly right: string;
  readonly onMerge: () => void;
}

function Heads({ found, family, left, right, onMerge }: HeadsProps) {
  const to = (side: "left" | "right") => (name: string) => go(side === "left" ? { screen: "compare", left: name, right } : { screen: "compare", left, right: name });
  return (
    <header class="compare-heads">
      <h1 class="unseen">Compare</h1>
      <Head place={found.left} family={family} onChoose={to("left")} words="Left" />
      <Head place={found.right} family={family} onChoose={to("right")} words="Right" />
      <div class="compare-acts">
        <button type="button" class="button" onClick={() => go({ screen: "compare", left: right, right: left })}>Swap <kbd class="key" aria-hidden="true">s</kbd></button>
        <button type="button" class="button" onClick={onMerge}><Icon name="merged" /> Merge… <kbd class="key" aria-hidden="true">m</kbd></button>
      </div>
    </header>
  );
}

interface HeadProps {
  readonly place: SeqRef;
  readonly family: FamilyShape | undefined;
  readonly onChoose: (name: string) => void;
  readonly words: string;
}

function Head({ place, family, onChoose, words }: HeadProps) {
  const branch = branchIn(family, place);
  const runs = [...toldRuns.value.values()].filter((each) => (each.branch ?? each.session) === place.log);
  const run = runs.find((each) => each.state === "running");
  const failed = runs.at(-1)?.error ? runs.at(-1) : undefined;
  const token = laneColor(branch?.color ?? 0).token;
  return (
    <div class="compare-head" style={{ "--lane": `var(${token})` }}>
      {family && family.branches.length > 1 ? (
        <select class="input" aria-label={`${words} branch`} value={branch?.short ?? ""} onChange={(event) => onChoose(event.currentTarget.value)}>
          {!branch && <option value="">{place.log.slice(-12, -4)}</option>}
          {family.branches.slice(0, 300).map((each) => <option key={each.log} value={each.short}>{each.name || each.short}</option>)}
        </select>
      ) : (
        <b><Line text={nameIn(family, place)} /></b>
      )}
      <a class="link mono" href={hrefOf(sessionRoute(branch?.short ?? place.log, place.seq))}>{`@${place.seq}`}</a>
      {branch && <StatusWord of={run ? { status: "running", standing: "running", is_due: false } : branch} />}
      {branch?.status === "waiting" && !branch.is_due && !run && <a class="link" href={hrefOf({ screen: "inbox", session: branch.short })}>Answer it</a>}
      {(run ?? failed) && <RunLine run={(run ?? failed)!} />}
    </div>
  );
}

function Comparison({ found }: { found: ComparisonShape }) {
  const facts = Object.entries(found.facts);
  const verdicts = Object.entries(found.verdicts);
  const isEqual = found.rows.every((row) => row.is_same) && found.files.files.length === 0 && facts.length === 0 && verdicts.length === 0;
  return (
    <>
      <section aria-label="Steps">
        <Common found={found} />
        {isEqual && <Empty>Nothing differs: they say, call and leave the same.</Empty>}
        {found.rows.length <= ROWS_DRAWN ? (
          <div class="aligned" role="table" aria-label="Steps side by side">
            {found.rows.map((row, index) => <Aligned key={index} row={row} />)}
          </div>
        ) : (
          <Window
            class="aligned is-long"
            count={found.rows.length}
            row={ROW_HEIGHT}
            attributes={{ role: "table", tabIndex: 0, "aria-label": "Steps side by side", "aria-rowcount": found.rows.length }}
            draw={(index) => <Aligned key={index} row={found.rows[index]!} index={index} />}
          />
        )}
        {found.is_cut && <p class="compare-more faint">There are more steps than are compared here.</p>}
      </section>
      {found.files.files.length > 0 && (
        <Part title={`${countText(found.files.files.length, "file differs", "files differ")}`}>
          {found.files.files.slice(0, 40).map((file) => <FileDiffView key={file.path} file={file} place={found.right} />)}
          {found.files.files.length > 40 && <p class="faint">{`and ${found.files.files.length - 40} more files`}</p>}
        </Part>
      )}
      {facts.length > 0 && <Part title="Facts">{facts.map(([key, sides]) => <Values key={key} name={key} sides={sides} />)}</Part>}
      {verdicts.length > 0 && <Part title="Verdicts">{verdicts.map(([key, sides]) => <Verdicts key={key} name={key} sides={sides} />)}</Part>}
      <Part title="Used, with what they have in common"><Spent left={found.left_spent} right={found.right_spent} /></Part>
      {(found.left_text || found.right_text) && (
        <Part title="Last words">
          <div class="two"><Text text={found.left_text} lines={20} /><Text text={found.right_text} lines={20} /></div>
        </Part>
      )}
    </>
  );
}

function Part({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="compare-part">
      <h2 class="label">{title}</h2>
      {children}
    </section>
  );
}

/** The steps that both have, folded. */
function Common({ found }: { found: ComparisonShape }) {
  const { source } = usePage();
  const [isOpen, setOpen] = useState(false);
  const base = found.base;
  const steps = useAnswer(isOpen && base ? source.steps(base.log, 0, 500) : null);
  if (!base) return <p class="compare-common warn">They have nothing in common.</p>;
  if (found.common_steps === 0) return null;
  return (
    <details class="compare-common fold" open={isOpen} onToggle={(event) => setOpen((event.currentTarget as HTMLDetailsElement).open)}>
      <summary>
        {`${countText(found.common_steps, "step")} in common, up to `}<span class="mono">{`@${base.seq}`}</span>
      </summary>
      {isOpen && (
        <Shows shown={steps}>
          {(page) => <div>{page.steps.filter((step) => step.seq <= base.seq).map((step) => <Cell key={step.index} step={step} />)}</div>}
        </Shows>
      )}
    </details>
  );
}

function Aligned({ row, index }: { row: AlignedStep; index?: number }) {
  const differs = row.left && row.right && !row.is_same;
  return (
    <div role="row" aria-rowindex={index === undefined ? undefined : index + 1} class={`aligned-row ${row.is_same ? "is-same" : ""} ${differs ? "differs" : ""}`}>
      <div role="cell" class={row.left ? "" : "is-none"}>{row.left && <Cell step={row.left} />}</div>
      <div role="cell" class={row.right ? "" : "is-none"}>{row.right && <Cell step={row.right} />}</div>
    </div>
  );
}

function Cell({ step }: { step: StepShape }) {
  return (
    <a class={`step-row is-${step.type} was-${step.state}`} data-row href={hrefOf(sessionRoute(step.log, step.seq))}>
      <StepLine step={step} />
    </a>
  );
}

function Side({ value }: { value: Json }) {
  if (value === null || value === undefined) return <span class="faint">–</span>;
  return typeof value === "string" ? <Text text={value} lines={12} /> : <JsonView value={value} />;
}

function Values({ name, sides }: { name: string; sides: ValueSides }) {
  return (
    <div class="compare-value">
      <h3 class="mono"><Line text={name} /></h3>
      <div class="two"><div><Side value={sides.left} /></div><div><Side value={sides.right} /></div></div>
    </div>
  );
}

function Verdicts({ name, sides }: { name: string; sides: ValueSides }) {
  const one = (value: Json) => (typeof value === "boolean" ? <span class={value ? "good" : "bad"}><Icon name={value ? "passed" : "failed"} /> {value ? "passed" : "failed"}</span> : <Side value={value} />);
  return (
    <div class="compare-value">
      <h3 class="mono"><Line text={name} /></h3>
      <div class="two"><div class="verdict-word">{one(sides.left)}</div><div class="verdict-word">{one(sides.right)}</div></div>
    </div>
  );
}

function Spent({ left, right }: { left: SpentShape; right: SpentShape }) {
  const rows: [string, (spent: SpentShape) => string][] = [
    ["cost", (spent) => (spent.model_calls === 0 ? "nothing" : costText(spent))],
    ["tokens in", (spent) => numberText(spent.input_tokens)],
    ["tokens out", (spent) => numberText(spent.output_tokens)],
    ["model calls", (spent) => numberText(spent.model_calls)],
    ["tool calls", (spent) => numberText(spent.tool_calls)],
  ];
  return (
    <div class="two">
      {[left, right].map((spent, side) => (
        <dl key={side} class="pairs spent">
          {rows.map(([name, value]) => [<dt key={`${name}-name`}>{name}</dt>, <dd key={name}>{value(spent)}</dd>])}
        </dl>
      ))}
    </div>
  );
}
