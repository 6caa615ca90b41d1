/** The keys of the workbench. */

import { signal } from "@preact/signals";
import { useKeys } from "../base/keys";
import { usePage } from "../base/page";
import { go, route, type Tab } from "../base/router";
import { markBit } from "../base/rows";
import { compareFrom } from "../parts/bar";
import { pane } from "./workbench";

/** True: outputs and arguments of the step are shown whole. */
export const isExpanded = signal(false);
export const isPlaying = signal(false);

export function showTab(tab: Tab): void {
  const now = route.peek();
  if (now.screen !== "session") return;
  pane.value = "panel";
  if (now.tab !== tab) go({ ...now, tab, line: null, about: "" });
}

export function useWorkbenchKeys(): void {
  const { model } = usePage();
  const by = (count: number) => () => model.glideTo(Math.max(0, model.row.peek()) + count);
  const nextMark = (direction: 1 | -1) => () => {
    const outline = model.outline.peek();
    if (!outline) return;
    for (let row = model.row.peek() + direction; row >= 0 && row < outline.count; row += direction)
      if (outline.marks[row]! & markBit("files")) return model.glideTo(row);
  };
  const event = (by: 1 | -1) => () => {
    const place = model.cursor.peek();
    const branch = model.branch.peek();
    if (!place || !branch) return;
    const seq = place.seq + by;
    if (seq >= 1 && seq <= branch.tip) model.goTo({ log: place.log, seq });
  };
  // A key that follows an arrow at once is meant for where the cursor is, not for the address.
  const arrive = () => {
    if (model.isGliding.peek()) model.endGlide();
  };
  const show = (tab: Tab) => () => {
    arrive();
    showTab(tab);
  };
  const group = "Steps";
  useKeys([
    { key: "j", words: "next step", act: by(1), group },
    { key: "k", words: "step before", act: by(-1), group },
    { key: "ArrowRight", words: "next step", act: by(1), group, isHidden: true },
    { key: "ArrowLeft", words: "step before", act: by(-1), group, isHidden: true },
    { key: "Shift+ArrowRight", words: "next changed file", act: nextMark(1), group },
    { key: "Shift+ArrowLeft", words: "changed file before", act: nextMark(-1), group },
    { key: "]", words: "next event", act: event(1), group },
    { key: "[", words: "event before", act: event(-1), group },
    { key: "Home", words: "first step", act: () => model.glideTo(0), group },
    { key: "End", words: "last step", act: () => model.glideTo((model.rows.peek()?.count ?? 1) - 1), group },
    { key: "Space", words: "play, stop", act: () => (isPlaying.value = !isPlaying.peek()), group },
    {
      key: "/",
      words: "filter the steps",
      group,
      act: () => {
        pane.value = "steps";
        document.querySelector<HTMLInputElement>("#step-words")?.select();
      },
    },
    {
      key: "Enter",
      words: "open the step",
      group: "Step",
      act: () => {
        show("step")();
        document.getElementById("panel")?.focus();
      },
    },
    { key: "x", words: "expand, fold", act: () => (isExpanded.value = !isExpanded.peek()), group: "Step" },
    {
      key: "b",
      words: "files, and who wrote which line",
      group: "Step",
      act: () => {
        arrive();
        const file = model.step.peek()?.files[0];
        const now = route.peek();
        if (now.screen !== "session") return;
        pane.value = "panel";
        go({ ...now, tab: "files", path: file ?? now.path, line: null });
      },
    },
    { key: "p", words: "prompt", act: show("prompt"), group: "Step" },
    { key: "w", words: "why", act: show("why"), group: "Step" },
    { key: "i", words: "influence", act: show("influence"), group: "Step" },
    { key: "r", words: "raw events", act: show("raw"), group: "Step" },
    { key: "s", words: "state", act: show("state"), group: "Step" },
    {
      key: "c",
      words: "compare with another branch",
      group: "Act",
      act: () => {
        const root = model.family.peek()?.branches[0];
        if (root) compareFrom(model.branch.peek()?.short ?? root.short, root.short);
      },
    },
    {
      key: "f",
      words: "what if",
      group: "Act",
      act: () => {
        const [place, now] = [model.cursor.peek(), route.peek()];
        if (place) go({ screen: "whatif", session: model.branch.peek()?.short ?? place.log, seq: place.seq });
        else if (now.screen === "session") go({ screen: "whatif", session: now.session, seq: now.seq }); // it is on its way
      },
    },
    {
      key: "Escape",
      words: "back to the steps",
      group: "Go",
      act: () => {
        isPlaying.value = false;
        pane.value = "steps";
        document.getElementById("steps")?.focus();
      },
    },
  ], [model]);
}
