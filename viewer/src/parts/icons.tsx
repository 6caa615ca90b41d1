/** Icons as paths of a 16 px grid, drawn with a line of 1.5 px. */

import type { StepMark, StepType } from "../shapes";

export const PATHS = {
  person: "M8 8a2.75 2.75 0 1 0 0-5.5A2.75 2.75 0 0 0 8 8ZM2.75 13.5c.5-2.6 2.6-4 5.25-4s4.75 1.4 5.25 4",
  words: "M3 4h10M3 8h10M3 12h6",
  tool: "M3.5 4.5 6.5 8l-3 3.5M8 11.5h4.5",
  file: "M4 2.5h5l3 3v8H4zM9 2.5v3h3",
  folder: "M2 4.5h4l1.5 1.5H14v6.5H2z",
  link: "M6.5 9.5 12 4M8 3.5h4.5V8M6 4.5H3.5v8h8V10",
  change: "M8 3v6M5 6h6M5 12.5h6",
  passed: "M3 8.5 6.5 12 13 4.5",
  failed: "M4 4l8 8M12 4l-8 8",
  hand: "M5 8V4.2a1.1 1.1 0 0 1 2.2 0V7.5 3.1a1.1 1.1 0 0 1 2.2 0V7.5 4a1.1 1.1 0 0 1 2.2 0v5.5c0 2.6-1.5 4.2-3.9 4.2-2 0-2.9-.8-3.9-2.6L2.4 8.6a1.05 1.05 0 0 1 1.8-1L5 8.8",
  kill: "M9 1.8 3.5 9H8l-1 5.2L12.5 7H8z",
  merge: "M4.5 2.5v11M4.5 4c0 4 7 3 7 6.5v3M11.5 13.5",
  merged: "M4.5 2.5v11M11.5 2.5v3c0 3.5-7 2.5-7 6",
  fork: "M4.5 2.5v11M4.5 5.5c0 4 7 2.5 7 6v2",
  rewind: "M5.5 3 2.5 6l3 3M2.5 6H10a3.5 3.5 0 0 1 0 7H6",
  compaction: "M3 2.5h10M3 13.5h10M8 4v3M6.5 5.5 8 7l1.5-1.5M8 12V9M6.5 10.5 8 9l1.5 1.5",
  memory: "M4 2.5h8v11l-4-3-4 3z",
  question: "M5.5 6a2.5 2.5 0 1 1 3.6 2.2C8.3 8.7 8 9.1 8 10M8 12.8v.2",
  fact: "M8 2.5 13.5 8 8 13.5 2.5 8z",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 4.8V8l2.2 1.6",
  place: "M2.5 4.5h11v7h-11zM2.5 7.5h11",
  play: "M5 3v10l8-5z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  flag: "M4 14V2.5h8.5L10.5 6l2 3.5H4",
  taken: "M3 8a5 5 0 1 0 1.6-3.7M3 2.5v3h3",
  route: "M3 4.5h3c4 0 1 7 5 7h2M11 9.5l2 2-2 2M11 2.5l2 2-2 2M9 4.5h4",
  coin: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11ZM9.8 6C9.3 5.3 6.4 5.1 6.4 6.7c0 1.7 3.4.9 3.4 2.6 0 1.7-3 1.4-3.6.6M8 4.3v.9M8 10.7v.9",
  dot: "M8 8h.01",
  left: "M10 3.5 5.5 8l4.5 4.5",
  right: "M6 3.5 10.5 8 6 12.5",
  down: "M3.5 6 8 10.5 12.5 6",
  first: "M4 3.5v9M12 3.5 7 8l5 4.5z",
  last: "M12 3.5v9M4 3.5 9 8l-5 4.5z",
  copy: "M5.5 5.5h8v8h-8zM3 10.5H2.5v-8h8V3",
  download: "M8 2.5v7.5M5 7l3 3 3-3M3 13.5h10",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9ZM10.5 10.5l3 3",
  home: "M2.5 7.5 8 2.8l5.5 4.7M4 6.5v7h8v-7",
  inbox: "M2.5 9 4.5 3h7l2 6v4h-11zM2.5 9h3.2L7 11h2l1.3-2h3.2",
  compare: "M4.5 2.5v11M11.5 2.5v11M7 5h2M7 8h2M7 11h2",
  whatif: "M4.5 13.5v-11M4.5 9c0-4 7-2 7-6.5M9.5 4l2-1.7 2 1.7",
  sun: "M8 10.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM8 1.8v1.4M8 12.8v1.4M1.8 8h1.4M12.8 8h1.4M3.6 3.6l1 1M11.4 11.4l1 1M12.4 3.6l-1 1M4.6 11.4l-1 1",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5Z",
  system: "M2.5 3.5h11v7.5h-11zM6 13.5h4",
  keys: "M1.8 4h12.4v8H1.8zM4 6.6h.01M6.6 6.6h.01M9.4 6.6h.01M12 6.6h.01M5 9.6h6",
  warn: "M8 2.5 14 13H2zM8 6.5v3M8 11.4v.1",
  close: "M4 4l8 8M12 4l-8 8",
  steps: "M3 4h.01M6 4h7M3 8h.01M6 8h7M3 12h.01M6 12h7",
  state: "M3 13V8.5M6.3 13V3M9.7 13V6.5M13 13V10",
  follow: "M8 2.5v8M4.5 7 8 10.5 11.5 7M3 13.5h10",
  trash: "M3 4.5h10M6 4.5v-2h4v2M4.5 4.5l.7 9h5.6l.7-9",
  note: "M3 3h10v7.5L10.5 13H3zM10.5 13v-2.5H13",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, label, class: extra = "" }: { name: IconName; label?: string; class?: string }) {
  return label ? (
    <svg class={`icon ${extra}`} viewBox="0 0 16 16" role="img" aria-label={label}>
      <path d={PATHS[name]} />
    </svg>
  ) : (
    <svg class={`icon ${extra}`} viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

export const TYPE_ICONS: Readonly<Record<StepType, IconName>> = {
  message: "person",
  reply: "words",
  tool: "tool",
  question: "question",
  verdict: "passed",
  fact: "fact",
  pending: "flag",
  route: "route",
  fork: "fork",
  merge: "merged",
  rewind: "rewind",
  compaction: "compaction",
  placement: "place",
  run: "play",
  taken: "taken",
  ended: "flag",
  wait: "clock",
  memory: "memory",
  life: "dot",
  budget: "coin",
  failure: "warn",
  bypass: "warn",
  note: "note",
};

export const MARK_WORDS: Readonly<Record<StepMark, string>> = {
  files: "changed files",
  passed: "verdict passed",
  failed: "failed",
  approval: "approval",
  kill: "killed",
  merge: "merge",
  compaction: "compaction",
  fork: "fork",
  rewind: "rewind",
  memory: "memory",
};

export const MARK_ICONS: Readonly<Record<StepMark, IconName>> = {
  files: "change",
  passed: "passed",
  failed: "failed",
  approval: "hand",
  kill: "kill",
  merge: "merged",
  compaction: "compaction",
  fork: "fork",
  rewind: "rewind",
  memory: "memory",
};
