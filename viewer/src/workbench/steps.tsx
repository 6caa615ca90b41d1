/** The steps of the family, one line each, with the lanes at their left. */

import { computed, signal, useComputed } from "@preact/signals";
import { useCallback, useEffect, useMemo, useRef } from "preact/hooks";
import { countText, tokensText, tookText } from "../base/format";
import { isBroken } from "../base/broken";
import { laneColor, lanesWidth, laneX, linesInSight } from "../base/lanes";
import { ROW_HEIGHT } from "../base/model";
import { usePage } from "../base/page";
import { markBit } from "../base/rows";
import { plainText } from "../base/text";
import type { Sight } from "../base/windowing";
import { Icon, stepIcon } from "../parts/icons";
import { Line } from "../parts/text";
import { Window } from "../parts/window";
import { askForWords, textOf } from "../screens/find";
import type { StepShape } from "../shapes";
import { lineageOf } from "./lineage";
import { LiveWords, NewSteps } from "./live";
import { pane } from "./workbench";

export const FILTERS = [
  ["all", "All"],
  ["changes", "Changes"],
  ["failures", "Failures"],
  ["people", "People"],
] as const;
export type StepFilter = (typeof FILTERS)[number][0];
export const stepFilter = signal<StepFilter>("all");
/** Only steps with these words are shown; "": all. */
export const stepWords = signal("");

const FILTER_BITS: Readonly<Record<StepFilter, number>> = {
  all: 0,
  changes: markBit("files") | markBit("merge"),
  failures: markBit("failed") | markBit("kill"),
  people: markBit("approval"),
};

export function StepList() {
  const page = usePage();
  const { model } = page;
  // The rows that the filter leaves; null: all.
  const shownRows = useMemo(
    () =>
      computed(() => {
        const outline = model.outline.value;
        const filter = stepFilter.value;
        const words = stepWords.value.trim().toLowerCase();
        if ((filter === "all" && !words) || !outline || !model.rows.value) return null;
        if (words) void model.version.value;
        const found: number[] = [];
        for (let row = 0; row < outline.count; row += 1) {
          const step = model.rows.value.stepAt(row)!;
          const type = model.outlines.get(step.log)?.typeAt(step.index);
          const isSaid = filter === "people" && (type === "message" || type === "question");
          if (filter !== "all" && !(outline.marks[row]! & FILTER_BITS[filter]) && !isSaid) continue;
          if (words && !hasWords(model.stepAt(row), words)) continue;
          found.push(row);
        }
        return found;
      }),
    [model],
  );
  const family = model.family.value!;
  const rows = model.rows.value!;
  const size = model.laneSize.value;
  const shown = shownRows.value;
  const row = model.row.value;
  void model.version.value;
  const count = shown ? shown.length : rows.count;
  const rowAt = (index: number) => (shown ? shown[index]! : index);
  const indexOf = (at: number) => (shown ? shown.indexOf(at) : at);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const need = useCallback(
    (sight: Sight) => {
      const ask = () => {
        if (!shown) return model.need(sight.first, sight.end);
        for (let i = sight.first; i < sight.end; i += 1) model.need(shown[i]!, shown[i]! + 1);
      };
      clearTimeout(timer.current);
      // A drag over thousands of rows asks for those where it rests.
      if (model.isGliding.peek()) timer.current = setTimeout(ask, 50);
      else ask();
    },
    [model, shown, model.version.value],
  );
  const width = lanesWidth(family.lane_count, size);
  const current = indexOf(row);
  return (
    <section class="steps" aria-label="Steps">
      <div class="steps-head">
        <span class="faint cut">
          {countText(rows.count, "step")}
          {family.branches.length > 1 && `, ${countText(family.branches.length - 1, "branch", "branches")}`}
        </span>
        <WordsField found={shown && stepWords.value ? count : null} />
        <div class="choice" role="group" aria-label="Filter of steps">
          {FILTERS.map(([name, words]) => (
            <button key={name} type="button" aria-pressed={stepFilter.value === name} onClick={() => (stepFilter.value = name)}>
              {words}
            </button>
          ))}
        </div>
      </div>
      <Window
        class="steps-list"
        more={3}
        count={count}
        row={ROW_HEIGHT}
        goal={current}
        onSight={need}
        under={(sight) => (shown ? null : <Lanes sight={sight} width={width} />)}
        attributes={{
          role: "listbox",
          tabIndex: 0,
          id: "steps",
          "aria-label": `${countText(count, "step")}`,
          "aria-activedescendant": row >= 0 ? `step-${row}` : undefined,
          onKeyDown: (event: KeyboardEvent) => {
            const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : event.key === "PageDown" ? 20 : event.key === "PageUp" ? -20 : 0;
            if (!by || count === 0) return;
            event.preventDefault();
            model.glideTo(rowAt(Math.max(0, Math.min(count - 1, (current < 0 ? 0 : current) + by))));
          },
          onMouseLeave: () => (model.hovered.value = -1),
        }}
        draw={(index) => <StepRow key={rowAt(index)} row={rowAt(index)} total={rows.count} left={shown ? 8 : width} />}
      />
      <LiveWords />
      <NewSteps />
    </section>
  );
}

function hasWords(step: StepShape | null, words: string): boolean {
  return step !== null && textOf(step).includes(words);
}

/** The field that filters steps by their words, also those that are not drawn. */
function WordsField({ found }: { found: number | null }) {
  const page = usePage();
  const isAsking = stepWords.value.trim() !== "";
  const version = page.model.version.value;
  const missing = useMemo(() => (isAsking ? askForWords(page) : 0), [isAsking, version]);
  useEffect(() => () => void (stepWords.value = ""), []);
  return (
    <span class="steps-words">
      <input
        id="step-words"
        class="input"
        type="search"
        aria-label="Words of steps"
        placeholder="Filter by words  /"
        autocomplete="off"
        value={stepWords.value}
        onInput={(event) => (stepWords.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape" && event.key !== "Enter" && event.key !== "ArrowDown") return;
          event.preventDefault();
          event.stopPropagation();
          if (event.key === "Escape") stepWords.value = "";
          document.getElementById("steps")?.focus();
        }}
      />
      <span class="unseen" role="status">{found === null ? "" : missing ? `${countText(found, "step")} so far` : countText(found, "step")}</span>
    </span>
  );
}

function Lanes({ sight, width }: { sight: Sight; width: number }) {
  const { model } = usePage();
  const rows = model.rows.value!;
  const size = model.laneSize.value;
  const past = lineageOf(model).value;
  const lines = linesInSight(model.links.value, sight.first, sight.end, size);
  const height = (sight.end - sight.first) * size.row;
  // Dots of one colour and sort are one path: a list has fewer elements then.
  const dots = new Map<string, string>();
  let here: { x: number; y: number; token: string } | null = null;
  const outline = model.outline.value;
  for (let row = sight.first; row < sight.end; row += 1) {
    const step = rows.stepAt(row);
    if (!step) continue;
    const stretch = rows.family.stretches[step.stretch]!;
    const marks = outline?.marks[row] ?? 0;
    const isFull = (marks & (markBit("files") | markBit("merge"))) !== 0;
    const { token } = laneColor(rows.family.branches[step.branch]!.color);
    const [x, y, radius] = [laneX(stretch.lane, size), (row - sight.first + 0.5) * size.row, isFull ? 3.5 : 2.5];
    if (row === model.row.value) here = { x, y, token };
    else {
      const key = `${token} ${isFull ? "is-full" : ""}`;
      const half = `a${radius} ${radius} 0 1 0`;
      dots.set(key, `${dots.get(key) ?? ""}M${x - radius} ${y}${half} ${radius * 2} 0${half} ${-radius * 2} 0`);
    }
  }
  return (
    <svg class="lanes" width={width} height={height} aria-hidden="true">
      {lines.map((line, index) => {
        const { token, isDashed } = laneColor(rows.family.branches[line.branch]!.color);
        return (
          <path
            key={index}
            d={line.d}
            class={isDashed ? "is-dashed" : ""}
            style={{ stroke: `var(${token})`, opacity: past && !isPast(rows.family, past, line.branch) ? 0.55 : 1 }}
          />
        );
      })}
      {[...dots].map(([key, d]) => (
        <path key={key} d={d} class={`dot ${key.split(" ")[1]!}`} style={{ color: `var(${key.split(" ")[0]!})` }} />
      ))}
      {here && <circle class="dot is-here" cx={here.x} cy={here.y} r={4.5} style={{ color: `var(${here.token})` }} />}
    </svg>
  );
}

function isPast(family: { stretches: readonly { branch: number }[] }, past: Uint8Array, branch: number): boolean {
  for (let i = 0; i < past.length; i += 1) if (past[i] && family.stretches[i]!.branch === branch) return true;
  return false;
}

function StepRow({ row, total, left }: { row: number; total: number; left: number }) {
  const { model } = usePage();
  // Each row looks at its own part alone: a move of the cursor draws two rows again, not forty.
  const step = useComputed(() => (model.version.value, model.rows.value && model.stepAt(row))).value;
  const isHere = useComputed(() => model.row.value === row).value;
  const isHovered = useComputed(() => model.hovered.value === row).value;
  return (
    <div
      role="option"
      id={`step-${row}`}
      aria-selected={isHere}
      aria-posinset={row + 1}
      aria-setsize={total}
      class={`step-row ${isHere ? "is-here" : ""} ${isHovered ? "is-hovered" : ""} ${step ? rowClass(step) : ""}`}
      style={{ paddingLeft: `${left}px` }}
      onClick={() => {
        if (step) model.goTo({ log: step.log, seq: step.seq });
        pane.value = "panel";
      }}
      onMouseEnter={() => (model.hovered.value = row)}
    >
      {step && <StepLine step={step} />}
    </div>
  );
}

function rowClass(step: StepShape): string {
  return `is-${step.type} was-${step.state} ${step.is_rewound ? "is-rewound" : ""}`;
}

/** One step as a line: the same in the list, in comparisons and in the palette. */
export function StepLine({ step }: { step: StepShape }) {
  const isCommand = step.type === "tool";
  return (
    <>
      <Icon name={stepIcon(step)} />
      <span class="step-words cut" title={plainText([step.verb, step.subject, step.says].filter(Boolean).join(" "), 400)}>
        {step.verb && <Line text={step.verb} class="step-verb" />}
        {step.subject && <Subject step={step} isCommand={isCommand} />}
        {step.says && <Line text={step.says} class="step-says" />}
      </span>
      {step.files.length > 0 && <ChangedFiles files={step.files} subject={step.subject} />}
      <StateWord step={step} />
      <span class="step-figure step-tokens">{step.tokens > 0 ? tokensText(step.tokens) : ""}</span>
      <span class="step-figure">{step.took_us !== null ? tookText(step.took_us) : ""}</span>
    </>
  );
}

/** The thing that a step is about. A fork names its branch, in the colour of its lane. */
function Subject({ step, isCommand }: { step: StepShape; isCommand: boolean }) {
  const { model } = usePage();
  const line = <Line text={step.subject} class={isCommand ? "step-subject mono" : "step-subject"} />;
  const branch = step.type === "fork" ? model.branchOf(step.log) : undefined;
  return branch ? <b class="step-fork" style={{ color: `var(${laneColor(branch.color).token})` }}>{line}</b> : line;
}

/** The files that a step changed. One that the line has named already is a sign alone. */
function ChangedFiles({ files, subject }: { files: readonly string[]; subject: string }) {
  const isNamed = files.length === 1 && files[0] === subject;
  return (
    <span class="step-files mono cut" title={`changed ${plainText(files.join(", "), 400)}`}>
      {isNamed ? <span class="unseen">changed it</span> : null}
      {"±"}
      {!isNamed && <Line text={files.length === 1 ? ` ${files[0]!}` : ` ${files.length} files`} />}
    </span>
  );
}

function StateWord({ step }: { step: StepShape }) {
  if (isBroken(step)) return <span class="step-state bad">broken</span>;
  if (step.exit_code) return <span class="step-state bad">{`exit ${step.exit_code}`}</span>;
  if (step.state === "waiting") return <span class="step-state warn">waits</span>;
  if (step.state === "unknown") return <span class="step-state warn">unknown</span>;
  if (step.state === "denied") return <span class="step-state bad">denied</span>;
  if (step.state === "open") return <span class="step-state">runs</span>;
  if (step.state === "failed" && step.type !== "verdict") return <span class="step-state bad">failed</span>;
  return null;
}
