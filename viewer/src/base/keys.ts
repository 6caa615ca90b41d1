/** Keys of the page: one table, made of what the screens that are shown register. */

import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";

export interface KeyAct {
  /** A key as `KeyboardEvent.key` names it, two after one another (`g h`), or `Ctrl+k`. */
  readonly key: string;
  readonly words: string;
  readonly act: (event: KeyboardEvent) => void;
  /** Shown in the table of keys under this name. */
  readonly group?: string;
  /** Not in the table. */
  readonly isHidden?: boolean;
}

const tables = signal<readonly (readonly KeyAct[])[]>([]);
let prefix = "";
let prefixTimer: ReturnType<typeof setTimeout> | undefined;

export function allKeys(): readonly KeyAct[] {
  return tables.value.flat();
}

/** Register keys while a component is shown. The last one that registers a key has it. */
export function useKeys(acts: readonly KeyAct[], inputs: readonly unknown[] = []): void {
  // Before the next key is pressed: it belongs to the screen that is shown now.
  useLayoutEffect(() => {
    tables.value = [...tables.peek(), acts];
    return () => {
      tables.value = tables.peek().filter((each) => each !== acts);
    };
  }, inputs);
}

export function keyName(event: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "shiftKey">): string {
  const name = event.key === " " ? "Space" : event.key;
  if (event.ctrlKey || event.metaKey) return `Ctrl+${name.toLowerCase()}`;
  // A letter or a sign says itself whether Shift was held; an arrow does not.
  return event.shiftKey && name.length > 1 ? `Shift+${name}` : name;
}

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || target.matches("input, textarea, select");
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.altKey || event.isComposing) return;
  const name = keyName(event);
  if (isTyping(event.target) && name !== "Escape" && !name.startsWith("Ctrl+")) return;
  if (document.querySelector("dialog[open]") && name !== "Ctrl+k") return;
  // A control uses its own keys: Space and Enter press a button or follow a link.
  const isPress = name === "Enter" || name === "Space";
  if (isPress && event.target instanceof Element && event.target.closest("button, a, summary")) return;
  const acts = allKeys();
  const whole = prefix ? `${prefix} ${name}` : name;
  prefix = "";
  clearTimeout(prefixTimer);
  const found = acts.findLast((each) => each.key === whole) ?? acts.findLast((each) => each.key === name);
  if (found) {
    event.preventDefault();
    found.act(event);
  } else if (acts.some((each) => each.key.startsWith(`${name} `))) {
    prefix = name;
    prefixTimer = setTimeout(() => (prefix = ""), 1200);
  }
}

export function startKeys(): void {
  addEventListener("keydown", onKey);
}
