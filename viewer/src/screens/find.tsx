/** Find in the steps: also those that are not drawn. Pressed twice, Ctrl-F is the browser's own. */

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useKeys } from "../base/keys";
import { usePage, type Page } from "../base/page";
import { route } from "../base/router";
import { Icon } from "../parts/icons";
import type { StepShape } from "../shapes";
import { isFindOpen } from "./opened";

const BATCH = 2000;

export function textOf(step: StepShape): string {
  return [step.verb, step.subject, step.says, step.actor, ...step.files].join(" ").toLowerCase();
}

/** Return the rows whose words hold the text. Rows whose words are not here are not among them. */
export function rowsWith(page: Page, text: string): number[] {
  const rows = page.model.rows.peek();
  const wanted = text.trim().toLowerCase();
  if (!rows || !wanted) return [];
  const found: number[] = [];
  for (let row = 0; row < rows.count; row += 1) {
    const step = page.model.stepAt(row);
    if (step && textOf(step).includes(wanted)) found.push(row);
  }
  return found;
}

/** Return how many rows have no words yet, and ask for some of them. */
export function askForWords(page: Page): number {
  const rows = page.model.rows.peek();
  if (!rows) return 0;
  let missing = 0;
  for (let row = 0; row < rows.count; row += 1) {
    if (page.model.stepAt(row)) continue;
    missing += 1;
    if (missing <= BATCH) page.model.need(row, row + 1);
  }
  return missing;
}

export function Find() {
  const isShown = route.value.screen === "session";
  const isOpen = isFindOpen.value && isShown;
  useKeys(
    isShown && !isOpen ? [{ key: "Ctrl+f", words: "find in the steps; twice: in the page", act: () => (isFindOpen.value = true), group: "Steps" }] : [],
    [isShown, isOpen],
  );
  return isOpen ? <FindBox /> : null;
}

function FindBox() {
  const page = usePage();
  const { model } = page;
  const box = useRef<HTMLInputElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const version = model.version.value;
  const found = useMemo(() => rowsWith(page, text), [text, version]);
  const missing = useMemo(() => (text.trim() ? askForWords(page) : 0), [text.trim() === "", version]);
  // Before the next key is pressed: it belongs to the box.
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current?.focus();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const close = () => (isFindOpen.value = false);
  const show = (index: number) => {
    if (found.length === 0) return;
    const next = (index + found.length) % found.length;
    setAt(next);
    model.goToRow(found[next]!);
  };
  const look = (value: string) => {
    setText(value);
    const rows = rowsWith(page, value);
    const here = model.row.peek();
    const next = rows.findIndex((row) => row >= here);
    setAt(Math.max(0, next));
    if (rows.length > 0) model.glideTo(rows[Math.max(0, next)]!);
  };
  return (
    <div class="find" role="search">
      <Icon name="search" />
      <input
        ref={box}
        type="text"
        aria-label="Find in all steps"
        placeholder="Find in all steps"
        value={text}
        spellcheck={false}
        onInput={(event) => look(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            event.stopPropagation();
            close();
          } else if (event.key === "Enter") {
            event.preventDefault();
            show(at + (event.shiftKey ? -1 : 1));
          }
        }}
      />
      <span class="find-count faint" role="status">
        {text.trim() && (found.length === 0 ? "none" : `${at + 1} of ${found.length}`)}
        {text.trim() && missing > 0 && ", still looking"}
      </span>
      <button type="button" class="button plain square" aria-label="Found before" onClick={() => show(at - 1)}><Icon name="left" /></button>
      <button type="button" class="button plain square" aria-label="Found next" onClick={() => show(at + 1)}><Icon name="right" /></button>
      <button type="button" class="button plain square" aria-label="Close" onClick={close}><Icon name="close" /></button>
    </div>
  );
}
