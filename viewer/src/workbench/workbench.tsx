/** One session at one place: steps and lanes, the step, the state, the strip. */

import { signal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { usePage } from "../base/page";
import { Broken, LoadingLine } from "../parts/states";
import { Panel } from "./panel";
import { StatePanel } from "./state";
import { StepList } from "./steps";
import { Strip } from "./strip";
import { useWorkbenchKeys } from "./workbench_keys";

export type Pane = "steps" | "panel" | "state";
/** On a narrow screen one pane is shown at a time. */
export const pane = signal<Pane>("steps");
/** The share of the width that the steps have. */
const stepsWidth = signal(38);

const PANES: readonly [Pane, string][] = [
  ["steps", "Steps"],
  ["panel", "Step"],
  ["state", "State"],
];

export function Workbench() {
  const { model } = usePage();
  useWorkbenchKeys();
  if (model.failure.value)
    return (
      <main class="screen">
        <h1 class="unseen">Session</h1>
        <Broken failure={model.failure.value} />
      </main>
    );
  if (!model.family.value)
    return (
      <main class="screen is-loading">
        <LoadingLine />
      </main>
    );
  return (
    <main class={`workbench shows-${pane.value}`} style={{ "--steps-width": `${stepsWidth.value}%` }}>
      <nav class="pane-choice" aria-label="Panes">
        {PANES.map(([name, words]) => (
          <button key={name} type="button" aria-current={pane.value === name} onClick={() => (pane.value = name)}>
            {words}
          </button>
        ))}
      </nav>
      <StepList />
      <Divider />
      <Panel />
      <StatePanel />
      <Strip />
    </main>
  );
}

/** The line between steps and step: dragged, or moved with the arrows. */
function Divider() {
  const start = useRef<{ x: number; width: number } | null>(null);
  const set = (percent: number) => (stepsWidth.value = Math.max(22, Math.min(60, percent)));
  return (
    <div
      class="divider"
      role="separator"
      tabIndex={0}
      aria-orientation="vertical"
      aria-label="Width of the steps"
      aria-valuenow={Math.round(stepsWidth.value)}
      aria-valuemin={22}
      aria-valuemax={60}
      onPointerDown={(event) => {
        start.current = { x: event.clientX, width: stepsWidth.value };
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={(event) => {
        if (start.current) set(start.current.width + ((event.clientX - start.current.x) / innerWidth) * 100);
      }}
      onPointerUp={() => (start.current = null)}
      onKeyDown={(event) => {
        if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
        event.preventDefault();
        set(stepsWidth.value + (event.key === "ArrowLeft" ? -2 : 2));
      }}
    />
  );
}
