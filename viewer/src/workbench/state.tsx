/** The state at the place of the cursor, from the track: it moves with the strip without a question. */

import { useMemo } from "preact/hooks";
import { useAnswer } from "../base/answer";
import { answeredWords, waitsFor } from "../base/asks";
import { allTokens, costText, countText, numberText, shortNumber } from "../base/format";
import { usePage } from "../base/page";
import { hrefOf, sessionRoute } from "../base/router";
import { stateAt, trackSeq } from "../base/track";
import { plainText } from "../base/text";
import { Icon } from "../parts/icons";
import { Shows } from "../parts/states";
import { StatusWord } from "../parts/status";
import { Line, Pieces } from "../parts/text";
import { useActor, useAsks } from "../screens/standing";
import type { Json, TrackState } from "../shapes";
import { laneIndex } from "./strip_draw";

export function useTrack() {
  const { model, source } = usePage();
  const place = model.cursor.value;
  const shown = useAnswer(place ? source.track(place.log, trackSeq(place.seq, model.branch.value?.place ?? 0)) : null, model.isGliding.value ? 60 : 0);
  return useMemo(() => {
    const isHere = shown.value && place && shown.value.log === place.log && place.seq <= shown.value.last && place.seq >= shown.value.start.seq;
    return { ...shown, value: shown.value && place && (isHere || !shown.isStale) ? stateAt(shown.value, place.seq) : undefined };
  }, [shown.value, shown.error, shown.isStale, place]);
}

export function StatePanel() {
  return (
    <aside class="state-panel scroll" aria-label="State at this place" tabIndex={0}>
      <h2 class="label">State at this place</h2>
      <StateHere />
    </aside>
  );
}

/** The state, for the panel at the right or, on a narrower screen, for a tab. */
export function StateHere() {
  const { model } = usePage();
  const shown = useTrack();
  return (
    <>
      <Shows shown={shown}>{(state) => <StateLines state={state} />}</Shows>
      {model.isFollowing.value && (
        <p class="state-follow faint">
          <Icon name="follow" /> follows the end of the session
        </p>
      )}
    </>
  );
}

function StateLines({ state }: { state: TrackState }) {
  const { model } = usePage();
  const branch = model.branch.value;
  const facts = Object.values(state.facts);
  const pending = Object.entries(state.pending);
  const verdicts = Object.entries(state.verdicts);
  return (
    <>
      <dl class="pairs">
        <dt>branch</dt>
        <dd style={{ color: `var(--lane-${laneIndex(branch?.color ?? 0)})` }}>
          <Line text={branch?.name ?? ""} />
          {branch?.parent && <span class="faint">{branch.merged_into.length > 0 ? ` merged at ${branch.merged_into.map((at) => model.placeName(at)).join(", ")}` : " not merged"}</span>}
        </dd>
        <dt>status</dt>
        <dd>
          {branch && (model.cursor.value?.seq ?? 0) >= branch.tip ? <StatusWord of={branch} /> : <span class={`status is-${state.status}`}>{state.status}</span>}
        </dd>
        <dt title="on the way to this place, without branches that were not merged">spent here</dt>
        <dd>
          {`${shortNumber(allTokens(state.spent))} tokens`}
          <span class="faint">{` · ${costText(state.spent)}`}</span>
        </dd>
        <dt>calls</dt>
        <dd>{`${countText(state.spent.model_calls, "reply", "replies")}, ${countText(state.spent.tool_calls, "tool call")}`}</dd>
        <dt>placed</dt>
        <dd>{state.placement_text ? <Pieces text={state.placement_text} /> : <span class="faint">nowhere</span>}</dd>
      </dl>
      <BudgetLines budget={state.budget} left={state.budget_left} />
      <Section title="Verdicts" empty="none yet" count={verdicts.length}>
        {verdicts.slice(-LINES_MAX).map(([name, passed]) => (
          <p key={name} class="state-line">
            <Icon name={passed ? "passed" : "failed"} class={passed ? "good" : "bad"} />
            <Line text={name} /> <span class={passed ? "good" : "bad"}>{passed ? "passed" : "failed"}</span>
          </p>
        ))}
        <Rest count={verdicts.length} />
      </Section>
      <Section title="Facts" empty="none" count={facts.length}>
        {facts.slice(-LINES_MAX).map((fact) => (
          <a
            key={fact.key}
            class="state-line"
            href={hrefOf(sessionRoute(fact.at.log, fact.at.seq))}
            title={`${fact.kind}, ${model.placeName(fact.at)}`}
          >
            <Line text={fact.key} class="quiet" />
            <Line text={valueText(fact.value)} class="mono" />
          </a>
        ))}
        <Rest count={facts.length} />
      </Section>
      <Section title="Pending" empty="nothing" count={pending.length}>
        {pending.slice(-LINES_MAX).map(([key, what]) => (
          <p key={key} class="state-line" title={plainText(key)}>
            <Line text={what || key} />
          </p>
        ))}
        <Rest count={pending.length} />
      </Section>
      <ChangedFiles state={state} />
      <Waits />
    </>
  );
}

/** A section names the latest few: a session may have thousands, and the raw events have them all. */
const LINES_MAX = 12;

function Rest({ count }: { count: number }) {
  return count > LINES_MAX ? <p class="faint">{`and ${numberText(count - LINES_MAX)} more`}</p> : null;
}

function Section(props: { title: string; empty: string; count: number; children: preact.ComponentChildren }) {
  return (
    <section class="state-section">
      <h3 class="label">{props.title}</h3>
      {props.count === 0 ? <p class="faint">{props.empty}</p> : props.children}
    </section>
  );
}

export function valueText(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value)?.slice(0, 300) ?? "";
}

const LIMIT_WORDS: Readonly<Record<string, string>> = {
  tokens_max: "tokens", cost_usd_max: "dollars", wall_s_max: "seconds", model_calls_max: "replies",
  tool_calls_max: "tool calls", calls_max: "calls",
};

function BudgetLines({ budget, left }: { budget: Json; left: Json }) {
  const limits = numbersOf(budget);
  const rest = numbersOf(left);
  return (
    <section class="state-section">
      <h3 class="label">Budget</h3>
      {limits.size === 0 && <p class="faint">unlimited</p>}
      {[...limits].map(([name, limit]) => {
        const remains = rest.get(name) ?? limit;
        const share = limit > 0 ? Math.max(0, Math.min(1, 1 - remains / limit)) : 1;
        const words = LIMIT_WORDS[name] ?? name.replace(/_max$/, "").replaceAll("_", " ");
        return (
          <div key={name} class="budget">
            <p>
              {`${amount(name, remains)} of ${amount(name, limit)}`} <span class="faint">{name.includes("usd") ? "left" : `${words} left`}</span>
            </p>
            <div class={`budget-bar ${share > 0.9 ? "is-low" : ""}`} role="img" aria-label={`${Math.round(share * 100)} % of the ${words} spent`}>
              <div style={{ width: `${share * 100}%` }} />
            </div>
          </div>
        );
      })}
    </section>
  );
}

function amount(name: string, value: number): string {
  if (!name.includes("usd")) return numberText(Math.round(value));
  return `$${value.toFixed(Number.isInteger(value * 100) ? 2 : 4)}`;
}

function numbersOf(value: Json): Map<string, number> {
  const found = new Map<string, number>();
  if (value && typeof value === "object" && !Array.isArray(value))
    for (const [key, each] of Object.entries(value)) if (typeof each === "number") found.set(key, each);
  return found;
}

function ChangedFiles({ state }: { state: TrackState }) {
  const { model, source } = usePage();
  const first = useFirstTree();
  const place = model.cursor.value!;
  const shown = useAnswer(
    state.tree && first && first !== state.tree ? source.diff(first, state.tree) : null,
    model.isGliding.value ? 80 : 0,
  );
  const files = state.tree === first ? [] : (shown.value?.files ?? []);
  const isKnown = state.tree === first || (first !== null && !shown.isStale);
  return (
    <section class="state-section">
      <h3 class="label">Files changed</h3>
      {!state.tree && <p class="faint">no files</p>}
      {state.tree && files.length === 0 && <p class="faint">{isKnown ? "none so far" : "…"}</p>}
      {files.slice(0, LINES_MAX).map((file) => (
        <a
          key={file.path}
          class="state-line"
          href={hrefOf(sessionRoute(model.branch.value?.short ?? place.log, place.seq, { tab: "files", path: file.path }))}
        >
          <Line text={file.path} class="mono" />
          <span class="state-counts">
            {file.added > 0 && <span class="good">{`+${file.added}`}</span>} {file.removed > 0 && <span class="bad">{`−${file.removed}`}</span>}
          </span>
        </a>
      ))}
      <Rest count={files.length} />
    </section>
  );
}

/** The tree that the family began with; null: it has none, or it is not known yet. */
export function useFirstTree(): string | null {
  const { model, source } = usePage();
  const root = model.family.value?.root;
  const track = useAnswer(root ? source.track(root, 1) : null);
  return useMemo(() => {
    if (!track.value) return null;
    return track.value.start.tree ?? track.value.changes.find((change) => change.tree)?.tree ?? null;
  }, [track.value]);
}

function Waits() {
  const { model } = usePage();
  const family = model.family.value!;
  const root = family.branches[0]!;
  const here = model.branch.value ?? root;
  const actor = useActor();
  const rootAsks = useAsks(root.log, root.status);
  const hereAsks = useAsks(here.log, here.status);
  const asks = [...new Map([...(rootAsks ?? []), ...(hereAsks ?? [])].map((ask) => [ask.id, ask])).values()];
  const told = new Set(asks.map((ask) => ask.session));
  // What other branches wait for is told when one looks at them.
  const others = family.branches.filter((branch) => branch.status === "waiting" && !told.has(branch.log) && !(branch === root && rootAsks) && !(branch === here && hereAsks));
  return (
    <section class="state-section">
      <h3 class="label">Waits</h3>
      {asks.length + others.length === 0 && <p class="faint">for nothing</p>}
      {asks.map((ask) => (
        <a key={ask.id} class={`state-line ${ask.answered ? "" : "warn"}`} href={ask.answered ? hrefOf(sessionRoute(ask.short, ask.seq)) : hrefOf({ screen: "inbox", session: ask.short })}>
          <Icon name={ask.answered ? "passed" : "hand"} />
          <Line text={answeredWords(ask) || `for ${waitsFor(ask, actor)}`} />
        </a>
      ))}
      {others.map((branch) => (
        <a key={branch.log} class="state-line warn" href={hrefOf({ screen: "inbox", session: branch.short })}>
          <Icon name="hand" />
          <Line text={branch.name} />
        </a>
      ))}
    </section>
  );
}
