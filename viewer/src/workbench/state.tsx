/** The state at the place of the cursor, from the track: it moves with the strip without a question. */

import { useMemo } from "preact/hooks";
import { useAnswer } from "../base/answer";
import { allTokens, costText, countText, numberText, shortNumber } from "../base/format";
import { usePage } from "../base/page";
import { hrefOf, sessionRoute } from "../base/router";
import { stateAt } from "../base/track";
import { plainText } from "../base/text";
import { Icon } from "../parts/icons";
import { Shows } from "../parts/states";
import { Line, Pieces } from "../parts/text";
import type { Json, TrackState } from "../shapes";
import { laneIndex } from "./strip_draw";

export function useTrack() {
  const { model, source } = usePage();
  const place = model.cursor.value;
  const shown = useAnswer(place ? source.track(place.log, trackSeq(place.seq)) : null, model.isGliding.value ? 60 : 0);
  return useMemo(() => {
    const isHere = shown.value && place && shown.value.log === place.log && place.seq <= shown.value.last && place.seq >= shown.value.start.seq;
    return { ...shown, value: shown.value && place && (isHere || !shown.isStale) ? stateAt(shown.value, place.seq) : undefined };
  }, [shown.value, shown.error, shown.isStale, place]);
}

const CHUNK = 2000;

/** Ask for the piece of the track by its first seq: all places of a piece are one question. */
export function trackSeq(seq: number): number {
  return Math.max(1, Math.floor((seq - 1) / CHUNK) * CHUNK + 1);
}

export function StatePanel() {
  const { model } = usePage();
  const shown = useTrack();
  return (
    <aside class="state-panel scroll" aria-label="State at this place" tabIndex={0}>
      <h2 class="label">State at this place</h2>
      <Shows shown={shown}>{(state) => <StateLines state={state} />}</Shows>
      {model.isFollowing.value && (
        <p class="state-follow faint">
          <Icon name="follow" /> follows the end of the session
        </p>
      )}
    </aside>
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
        </dd>
        <dt>status</dt>
        <dd>
          <span class={`status is-${state.status}`}>{state.status}</span>
        </dd>
        <dt>spent</dt>
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
        {verdicts.map(([name, passed]) => (
          <p key={name} class="state-line">
            <Icon name={passed ? "passed" : "failed"} class={passed ? "good" : "bad"} />
            <Line text={name} /> <span class={passed ? "good" : "bad"}>{passed ? "passed" : "failed"}</span>
          </p>
        ))}
      </Section>
      <Section title="Facts" empty="none" count={facts.length}>
        {facts.slice(0, 40).map((fact) => (
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
        {facts.length > 40 && <p class="faint">{`and ${facts.length - 40} more`}</p>}
      </Section>
      <Section title="Pending" empty="nothing" count={pending.length}>
        {pending.slice(0, 20).map(([key, what]) => (
          <p key={key} class="state-line" title={plainText(key)}>
            <Line text={what || key} />
          </p>
        ))}
      </Section>
      <ChangedFiles state={state} />
      <Waits />
    </>
  );
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
              {`${amount(name, remains)} of ${amount(name, limit)}`} <span class="faint">{`${words} left`}</span>
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
  return name.includes("usd") ? `$${value.toFixed(2)}` : numberText(Math.round(value));
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
  return (
    <section class="state-section">
      <h3 class="label">Files changed</h3>
      {!state.tree && <p class="faint">no files</p>}
      {state.tree && files.length === 0 && <p class="faint">{shown.isStale && state.tree !== first ? "…" : "none so far"}</p>}
      {files.slice(0, 30).map((file) => (
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
      {files.length > 30 && <p class="faint">{`and ${files.length - 30} more`}</p>}
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
  const waiting = family.branches.filter((branch) => branch.status === "waiting");
  return (
    <section class="state-section">
      <h3 class="label">Waits for you</h3>
      {waiting.length === 0 ? (
        <p class="faint">nothing</p>
      ) : (
        waiting.map((branch) => (
          <a key={branch.log} class="state-line warn" href={hrefOf({ screen: "inbox", session: branch.short })}>
            <Icon name="hand" />
            <Line text={branch.name} />
          </a>
        ))
      )}
    </section>
  );
}
