/** Merge: one side takes the results of the other; where they disagree, each is chosen. */

import { useState } from "preact/hooks";
import { useAnswer } from "../base/answer";
import { usePage } from "../base/page";
import { go, sessionRoute } from "../base/router";
import { Dialog } from "../parts/dialog";
import { Pieces, Text } from "../parts/text";
import type { ActShape, ComparisonShape, Json, SideChoice } from "../shapes";
import { Field, parseJson, Refused, useActing, useReadOnly } from "./acting";

type Table = { readonly [key: string]: Json };

function isTable(value: Json | undefined): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export interface Conflict {
  readonly key: string;
  /** Of a file: its path. */
  readonly path: string;
  /** By the name of the side; null: it is not there. */
  readonly sides: readonly (readonly [string, Json | null])[];
}

/** Read the conflicts out of the refusal of a merge. */
export function conflictsOf(fields: Readonly<Record<string, unknown>>): Conflict[] {
  const own = fields["fields"] as Table | undefined;
  if (!isTable(own) || !isTable(own["conflicts"])) return [];
  const gone = isTable(own["retracted"]) ? own["retracted"] : {};
  return Object.entries(own["conflicts"]).map(([key, sides]) => {
    const absent = Array.isArray(gone[key]) ? (gone[key] as string[]) : [];
    const said = isTable(sides) ? Object.entries(sides) : [];
    return {
      key,
      path: key.startsWith("(workspace)/") ? key.slice("(workspace)/".length) : "",
      sides: [...said.map(([name, value]) => [name, value] as const), ...absent.map((name) => [name, null] as const)],
    };
  });
}

/** The text of a side: of a file its content, else the value as JSON. */
export function sideText(value: Json | null, isFile: boolean): string {
  if (value === null) return "";
  if (isFile && isTable(value)) return typeof value["text"] === "string" ? value["text"] : value["entry"] === null ? "" : "no text";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

interface MergeProps {
  readonly found: ComparisonShape;
  readonly names: readonly [string, string];
  readonly onClose: () => void;
}

export function MergeDialog({ found, names, onClose }: MergeProps) {
  const { source } = usePage();
  const readOnly = useReadOnly();
  const [into, setInto] = useState<0 | 1>(0);
  const [choices, setChoices] = useState<{ readonly [key: string]: SideChoice }>({});
  const [conflicts, setConflicts] = useState<readonly Conflict[]>([]);
  const act = useActing<ActShape>();
  const target = into === 0 ? found.left : found.right;
  const other = into === 0 ? found.right : found.left;
  const open = conflicts.filter((each) => !(each.key in choices));
  const start = () =>
    void act
      .start(() =>
        source.act(target.log, "merge", { others: [`${other.log}@${other.seq}`], choices: choices as unknown as Json }).catch((error) => {
          const told = conflictsOf((error as { fields?: Record<string, unknown> }).fields ?? {});
          if (told.length > 0) setConflicts((known) => [...known.filter((each) => !told.some((one) => one.key === each.key)), ...told]);
          throw error;
        }),
      )
      .then((done) => {
        if (!done) return;
        onClose();
        go(sessionRoute(done.short));
      });
  const isConflict = act.failure?.kind === "MergeConflict";
  return (
    <Dialog title="Merge" class="merge-dialog" onClose={onClose}>
      <form
        class="act-form"
        onSubmit={(event) => {
          event.preventDefault();
          if (open.length === 0) start();
        }}
      >
        <fieldset class="radios">
          <legend class="label">Which takes the other's results in</legend>
          {([0, 1] as const).map((side) => (
            <label key={side} class="radio">
              <input type="radio" name="into" checked={into === side} onChange={() => { setInto(side); setConflicts([]); setChoices({}); act.clear(); }} />
              <span><b><Pieces text={names[side]} /></b> takes <Pieces text={names[side === 0 ? 1 : 0]} /> in</span>
            </label>
          ))}
        </fieldset>
        {isConflict ? (
          <p class="warn" role="alert">{`They disagree on ${conflicts.length === 1 ? "one thing" : `${conflicts.length} things`}. Nothing is written yet: choose.`}</p>
        ) : (
          act.failure && <Refused failure={act.failure} />
        )}
        {conflicts.map((conflict) => (
          <ConflictView key={conflict.key} conflict={conflict} found={found} choice={choices[conflict.key] ?? null} onChoose={(choice) => setChoices({ ...choices, [conflict.key]: choice })} />
        ))}
        <div class="acts">
          {readOnly ? <p class="faint">{readOnly}</p> : (
            <button type="submit" class="button first big" disabled={act.isBusy || open.length > 0}>{conflicts.length > 0 ? "Merge with these choices" : "Merge"}</button>
          )}
          <button type="button" class="button plain big" onClick={onClose}>Back</button>
          {open.length > 0 && <span class="faint">{`${open.length} to choose`}</span>}
        </div>
      </form>
    </Dialog>
  );
}

interface ConflictProps {
  readonly conflict: Conflict;
  readonly found: ComparisonShape;
  readonly choice: SideChoice | null;
  readonly onChoose: (choice: SideChoice) => void;
}

function ConflictView({ conflict, found, choice, onChoose }: ConflictProps) {
  const isFile = conflict.path !== "";
  const [text, setText] = useState(() => sideText(conflict.sides[0]?.[1] ?? null, isFile));
  const [isOwn, setOwn] = useState(false);
  const parsed = isFile ? { value: text as Json } : parseJson(text);
  const own = (value: string) => {
    setText(value);
    const read = isFile ? { value: value as Json } : parseJson(value);
    onChoose("value" in read ? { value: read.value } : { value });
  };
  return (
    <section class="conflict">
      <h3 class="mono"><Pieces text={conflict.path || conflict.key} /></h3>
      <div class="conflict-sides">
        <div class="conflict-side">
          <span class="label">before they part</span>
          <BaseSide found={found} conflict={conflict} />
        </div>
        {conflict.sides.map(([name, value]) => {
          const isGone = value === null || (isFile && isTable(value) && value["entry"] === null);
          return (
            <label key={name} class={`conflict-side radio ${choice?.side === name ? "is-chosen" : ""}`}>
              <input type="radio" name={`conflict-${conflict.key}`} checked={choice?.side === name && !isOwn} onChange={() => { setOwn(false); onChoose({ side: name }); }} />
              <span>
                <span class="label"><Pieces text={name} /></span>{" "}
                {isGone ? <span class="faint">it is gone</span> : <Text text={sideText(value, isFile)} isCode lines={16} />}
              </span>
            </label>
          );
        })}
      </div>
      <label class="radio">
        <input type="radio" name={`conflict-${conflict.key}`} checked={isOwn} onChange={() => { setOwn(true); own(text); }} />
        <span>something else</span>
      </label>
      {isOwn && <Field label={isFile ? "The text of the file" : "The value, as JSON"} value={text} onInput={own} rows={Math.min(14, text.split("\n").length + 1)} isCode error={"error" in parsed ? `${parsed.error}. It is taken as text.` : ""} />}
    </section>
  );
}

/** What both had before they parted. */
function BaseSide({ found, conflict }: { found: ComparisonShape; conflict: Conflict }) {
  const { source } = usePage();
  const base = useAnswer(found.base ? source.session(`${found.base.log}@${found.base.seq}`) : null).value;
  const file = useAnswer(base?.tree && conflict.path ? source.file(base.tree, conflict.path) : null);
  if (!base) return <span class="faint">–</span>;
  if (conflict.path) {
    if (file.error || !base.tree) return <span class="faint">it was not there</span>;
    return file.value ? <Text text={file.value.lines.join("\n")} isCode lines={16} /> : null;
  }
  const fact = base.facts[conflict.key];
  return fact ? <Text text={sideText(fact.value, false)} isCode lines={16} /> : <span class="faint">it was not there</span>;
}
