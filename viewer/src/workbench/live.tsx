/** What happens now: words that a model is writing, and new steps, announced sparingly. */

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { onFeed, type News } from "../base/feed";
import { countText } from "../base/format";
import { usePage } from "../base/page";
import type { DeltaShape, RunShape } from "../shapes";
import { Line } from "../parts/text";

interface Writing {
  readonly path: string;
  readonly log: string | null;
  readonly text: string;
}

const writing = signal<ReadonlyMap<string, Writing>>(new Map());
const KEPT = 600;

function hear(delta: DeltaShape): void {
  const key = `${delta.run} ${delta.path}`;
  const next = new Map(writing.value);
  const before = next.get(key);
  if (delta.type === "restart") next.delete(key);
  else next.set(key, { path: delta.path, log: delta.log, text: ((before?.text ?? "") + delta.text).slice(-KEPT) });
  writing.value = next;
}

/** A settled reply takes the place of the words that led to it. */
function settle(news: readonly News[]): void {
  if (writing.value.size === 0) return;
  const logs = new Set(news.map((each) => each.log));
  const next = new Map([...writing.value].filter(([, each]) => each.log === null || !logs.has(each.log)));
  if (next.size !== writing.value.size) writing.value = next;
}

/** Words that came after the reply they led to are over with their run. */
function endRun(run: RunShape): void {
  const ended = [...writing.value.keys()].filter((key) => run.state === "ended" && key.startsWith(`${run.id} `));
  if (ended.length > 0) writing.value = new Map([...writing.value].filter(([key]) => !ended.includes(key)));
}

onFeed("run", (data) => endRun(data as RunShape));
onFeed("delta", (data) => hear(data as DeltaShape));
onFeed("news", (data) => settle(data as readonly News[]));

/** The words that models write in runs of this server, below the steps. They are not on record yet. */
export function LiveWords() {
  const { model } = usePage();
  const rows = model.rows.value;
  const ours = [...writing.value.entries()].filter(([, each]) => each.log === null || rows?.branchOf.has(each.log));
  if (ours.length === 0) return null;
  return (
    <div class="live-words">
      {ours.slice(0, 4).map(([key, each]) => (
        <p key={key} class="live-line">
          <Line text={`${each.path.split("/").at(-1) ?? ""} writes`} class="faint" />
          <Line text={each.text.slice(-160)} />
        </p>
      ))}
    </div>
  );
}

const SPEAK_MS = 5000;

/** Say for the ear how many steps came, at most every few seconds. */
export function NewSteps() {
  const { model } = usePage();
  const count = model.rows.value?.count ?? 0;
  const root = model.family.value?.root;
  const [words, setWords] = useState("");
  const said = useRef({ root, count });
  useEffect(() => {
    if (said.current.root !== root) {
      said.current = { root, count };
      return;
    }
    if (count <= said.current.count) return;
    const timer = setTimeout(() => {
      setWords(`${countText(count - said.current.count, "new step")}`);
      said.current = { root, count };
    }, SPEAK_MS);
    return () => clearTimeout(timer);
  }, [root, count]);
  return (
    <p class="unseen" role="status">
      {words}
    </p>
  );
}
