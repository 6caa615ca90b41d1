/** All sessions: what waits for you, what runs, then by last activity. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useAnswer } from "../base/answer";
import { isForActor } from "../base/asks";
import { agoText, allTokens, costText, countText, dollarsText, shortNumber, spentText, timeText } from "../base/format";
import { useKeys } from "../base/keys";
import { usePage } from "../base/page";
import { go, hrefOf, route, sessionRoute } from "../base/router";
import { Icon } from "../parts/icons";
import { Broken, Empty, LoadingLine, Shows } from "../parts/states";
import { StatusWord } from "../parts/status";
import { Line, Pieces } from "../parts/text";
import type { AskShape, RunShape, SearchHit, SessionSummary } from "../shapes";
import { AskRow } from "./inbox";
import { newsCount, runWords, toldRuns } from "./live";
import { moveFocus } from "./rows";
import { useActor } from "./standing";

const TYPING_MS = 200;
const ASKS_AT_FIRST = 5;

/** Return the words of a filter that are not `name:value`: those are looked for in what was said. */
export function freeWords(filter: string): string {
  return filter
    .split(/\s+/)
    .filter((word) => word && !/^-?[a-z]+:\S/i.test(word))
    .join(" ");
}

export function Home() {
  const now = route.value;
  const filter = now.screen === "home" ? now.filter : "";
  const box = useRef<HTMLInputElement>(null);
  useKeys([
    { key: "j", words: "next session", act: () => moveFocus(1), group: "Sessions" },
    { key: "k", words: "session before", act: () => moveFocus(-1), group: "Sessions" },
    { key: "/", words: "filter", act: () => box.current?.select(), group: "Sessions" },
    {
      key: "Escape",
      words: "no filter",
      group: "Sessions",
      act: () => {
        go({ screen: "home", filter: "" }, "replace");
        (document.activeElement as HTMLElement | null)?.blur();
      },
    },
  ]);
  return (
    <main class="screen home scroll">
      <h1 class="unseen">Sessions</h1>
      <FilterBox filter={filter} box={box} />
      {filter === "" && <Waiting />}
      {filter === "" && <Running />}
      <Sessions filter={filter} />
      {freeWords(filter).length > 1 && <Said words={freeWords(filter)} />}
    </main>
  );
}

const EXAMPLES = ["status:waiting", "status:failed", "cost:>1", "is:root"];

function FilterBox({ filter, box }: { filter: string; box: { readonly current: HTMLInputElement | null } }) {
  const [text, setText] = useState(filter);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => {
    if (document.activeElement !== box.current) setText(filter);
  }, [filter]);
  const look = (value: string) => {
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => go({ screen: "home", filter: value.trim() }, "replace"), TYPING_MS);
  };
  return (
    <div class="home-filter" role="search">
      <Icon name="search" />
      <input
        ref={box as never}
        class="input"
        type="search"
        value={text}
        spellcheck={false}
        autocomplete="off"
        aria-label="Filter sessions, and search in what was said"
        placeholder="status:waiting user:u-17 cost:>1 tag:team=web, or words"
        onInput={(event) => look(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") {
            event.preventDefault();
            moveFocus(1);
          }
        }}
      />
      <span class="home-examples">
        {EXAMPLES.map((each) => (
          <a key={each} class="mono" href={hrefOf({ screen: "home", filter: filter === each ? "" : each })} aria-current={filter === each ? "true" : undefined}>{each}</a>
        ))}
      </span>
    </div>
  );
}

function Waiting() {
  const { source } = usePage();
  void newsCount.value;
  const shown = useAnswer(source.isFile ? null : source.inbox(""));
  const actor = useActor();
  const all = shown.value?.asks ?? [];
  const mine = all.filter((ask) => isForActor(ask, actor));
  return (
    <>
      <AsksPart title="Waits for you" asks={mine} />
      <AsksPart title="Waits for others" asks={all.filter((ask) => !mine.includes(ask))} />
    </>
  );
}

function AsksPart({ title, asks }: { title: string; asks: readonly AskShape[] }) {
  if (asks.length === 0) return null;
  return (
    <section class="home-part" aria-label={title}>
      <h2 class="home-head">
        {title} <span class="faint">{asks.length}</span>
      </h2>
      <ul>
        {asks.slice(0, ASKS_AT_FIRST).map((ask) => (
          <li key={ask.id}><AskRow ask={ask} isChosen={false} session="" /></li>
        ))}
      </ul>
      {asks.length > ASKS_AT_FIRST && (
        <p class="home-more"><a class="link" href={hrefOf({ screen: "inbox", session: "" })}>{`All ${asks.length} in the inbox`}</a></p>
      )}
    </section>
  );
}

function Running() {
  const { source } = usePage();
  void newsCount.value;
  const shown = useAnswer(source.isFile ? null : source.sessions("status:running"));
  const runs = useAnswer(source.isFile ? null : source.runs());
  const ours = useMemo(() => {
    const known = new Map<string, RunShape>((runs.value?.runs ?? []).map((run) => [run.id, run]));
    for (const [id, run] of toldRuns.value) known.set(id, run);
    return [...known.values()].filter((run) => run.state === "running");
  }, [runs.value, toldRuns.value]);
  const sessions = shown.value?.sessions ?? [];
  if (sessions.length === 0 && ours.length === 0) return null;
  const told = new Map(ours.map((run) => [run.branch ?? run.session, run]));
  const words = (session: SessionSummary) => {
    const run = told.get(session.log);
    return run ? (runWords.value.get(run.id) ?? "").split("\n").at(-1)! : "";
  };
  return (
    <section class="home-part" aria-label="Runs now">
      <h2 class="home-head">Runs now <span class="faint">{Math.max(sessions.length, ours.length)}</span></h2>
      <ul>
        {sessions.map((session) => (
          <li key={session.log}><SessionRow session={session} words={words(session)} /></li>
        ))}
        {sessions.length === 0 && ours.map((run) => (
          <li key={run.id}>
            <a class="session-row" data-row href={hrefOf(sessionRoute(run.branch ?? run.session))}>
              <span class="status is-running">running</span>
              <span class="session-name"><Line text={run.command} class="mono" /></span>
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Sessions({ filter }: { filter: string }) {
  const [pages, setPages] = useState<readonly string[]>([""]);
  useEffect(() => setPages([""]), [filter]);
  void newsCount.value;
  return (
    <section class="home-part" aria-label="Sessions">
      <h2 class="home-head">{filter ? "Found" : "Sessions"} <span class="faint home-order">last activity first</span></h2>
      {pages.map((before, index) => (
        <SessionsPage
          key={before}
          filter={filter}
          before={before}
          isLast={index === pages.length - 1}
          onMore={(next) => setPages([...pages, next])}
        />
      ))}
    </section>
  );
}

interface PageProps {
  readonly filter: string;
  readonly before: string;
  readonly isLast: boolean;
  readonly onMore: (next: string) => void;
}

function SessionsPage({ filter, before, isLast, onMore }: PageProps) {
  const { source } = usePage();
  void newsCount.value;
  const shown = useAnswer(source.sessions(filter, before || undefined));
  if (shown.error) return <Broken failure={shown.error} retry={shown.retry} />;
  const page = shown.value;
  if (!page) return <LoadingLine />;
  if (page.sessions.length === 0 && !before)
    return filter ? (
      <Empty>
        <p class="state-head">No session is like that.</p>
        <p>
          Filters are <code>status:</code> <code>user:</code> <code>project:</code> <code>tag:k=v</code> <code>label:</code> <code>cost:&gt;1</code> <code>events:&gt;100</code> <code>is:root</code> <code>is:due</code>; other words are looked for in names.
        </p>
      </Empty>
    ) : (
      <Empty>
        <p class="state-head">This store has no session yet.</p>
        <p>Start one: <code>plait run PROGRAM.py "…"</code></p>
      </Empty>
    );
  return (
    <>
      <ul class={shown.isStale ? "is-stale" : ""}>
        {page.sessions.filter((session) => filter || !session.is_branch_of_run).map((session) => (
          <li key={session.log}><SessionRow session={session} /></li>
        ))}
      </ul>
      {isLast && page.next && (
        <p class="home-more"><button type="button" class="link" onClick={() => onMore(page.next!)}>More sessions</button></p>
      )}
    </>
  );
}

function SessionRow({ session, words = "" }: { session: SessionSummary; words?: string }) {
  const said = words || session.last_text;
  const lost = session.spent_unmerged.cost_usd ?? 0;
  const about = [session.user, session.project, ...Object.entries(session.tags).map(([key, value]) => `${key}=${value}`)].filter(Boolean).join(" · ");
  return (
    <a class="session-row" data-row href={hrefOf(sessionRoute(session.short))}>
      <StatusWord of={session} />
      <span class="session-name">
        <b><Line text={session.name} /></b>
        {said && said !== session.name && <Line text={said} class="quiet" />}
      </span>
      <span class="session-about faint cut"><Line text={about} /></span>
      <span class="session-count faint cut">{session.branch_count > 0 && countText(session.branch_count, "branch", "branches")}{lost > 0 && `, ${smallDollars(lost)} not merged`}</span>
      <span class="session-tokens faint">{allTokens(session.spent) > 0 && `${shortNumber(allTokens(session.spent))} tok`}</span>
      <span class="session-cost">{session.spent.model_calls > 0 && <Cost session={session} />}</span>
      <time class="session-time faint" title={timeText(session.updated)}>{agoText(session.updated)}</time>
      {session.waiting > 0 && <span class="session-waiting warn">{`${session.waiting} waiting`}</span>}
      {session.queued > 0 && <span class="session-waiting faint">{`${session.queued} queued`}</span>}
    </a>
  );
}

function smallDollars(dollars: number): string {
  return dollars > 0 && dollars < 0.0001 ? "<$0.0001" : dollarsText(dollars);
}

function Cost({ session }: { session: SessionSummary }) {
  const { spent, spent_unmerged: lost } = session;
  const title = `${spentText(spent, lost)}${session.parent ? ", since it was forked" : ""}`;
  if (spent.cost_usd === null || (spent.cost_usd === 0 && spent.unpriced > 0)) return <span class="faint" title={costText(spent)}>no price</span>;
  return <span title={title}>{`${smallDollars(spent.cost_usd)}${spent.unpriced ? "+" : ""}`}</span>;
}

function Said({ words }: { words: string }) {
  const { source } = usePage();
  const shown = useAnswer(source.isFile ? null : source.search(words));
  return (
    <section class="home-part" aria-label="Said">
      <h2 class="home-head">Said <span class="faint home-order">messages and replies in which these words stand</span></h2>
      <Shows shown={shown}>
        {(page) =>
          page.hits.length === 0 ? (
            <p class="home-none faint">Nobody said that.</p>
          ) : (
            <>
              <ul>{page.hits.map((hit) => <li key={`${hit.log}@${hit.seq}`}><HitRow hit={hit} words={words} /></li>)}</ul>
              {page.is_cut && <p class="home-none faint">There is more: say it more exactly.</p>}
            </>
          )
        }
      </Shows>
    </section>
  );
}

/** Split a text at the words that were looked for. */
export function splitAtWords(text: string, words: string): readonly { readonly text: string; readonly isHit: boolean }[] {
  const wanted = words.split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (wanted.length === 0) return [{ text, isHit: false }];
  return text
    .split(new RegExp(`(${wanted.join("|")})`, "iu"))
    .map((part, index) => ({ text: part, isHit: index % 2 === 1 }))
    .filter((part) => part.text);
}

function HitRow({ hit, words }: { hit: SearchHit; words: string }) {
  return (
    <a class="hit-row" data-row href={hrefOf(sessionRoute(hit.log, hit.seq))}>
      <Icon name={hit.kind.startsWith("Model") ? "words" : "person"} />
      <span class="hit-words">
        {splitAtWords(hit.snippet, words).map((part, index) => (part.isHit ? <mark key={index}><Pieces text={part.text} /></mark> : <Pieces key={index} text={part.text} />))}
      </span>
      <span class="faint cut"><Line text={hit.name} /></span>
      <time class="faint session-time">{agoText(hit.time)}</time>
    </a>
  );
}
