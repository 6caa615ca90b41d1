/** Memory: what was recalled, with which scores, what it was used for, and what was proposed. */

import { useAnswer } from "../base/answer";
import { agoText, countText, timeText } from "../base/format";
import { usePage } from "../base/page";
import { hrefOf, route, sessionRoute } from "../base/router";
import { Empty, Shows } from "../parts/states";
import { Line, Pieces, Text } from "../parts/text";
import type { MemoryRow, RecalledMemory, RecallRow } from "../shapes";
import { nameOf } from "./ask";
import { newsCount } from "./live";
import { SessionHead } from "./session_head";

export function MemoryScreen() {
  const { source } = usePage();
  const now = route.value;
  void newsCount.value;
  const session = (now.screen === "memory" && now.session) || "@";
  const shown = useAnswer(source.memory(session));
  return (
    <main class="screen scroll sheet">
      <SessionHead session={session} screen="Memory" />
      <Shows shown={shown}>
        {(page) => (
          <>
            {page.recalls.length + page.proposed.length + page.decided.length === 0 && (
              <Empty>
                <p class="state-head">No memory was recalled or proposed in this session.</p>
                <p>An agent recalls if it has a memory: <code>Agent(…, memory=Memory(…))</code></p>
              </Empty>
            )}
            {page.recalls.length > 0 && (
              <section>
                <h2 class="label">{countText(page.recalls.length, "recall")}</h2>
                {page.recalls.map((recall) => <Recall key={`${recall.log}@${recall.seq}`} recall={recall} />)}
              </section>
            )}
            <Rows title="Proposed" rows={page.proposed} />
            <Rows title="Decided" rows={page.decided} />
          </>
        )}
      </Shows>
    </main>
  );
}

function Recall({ recall }: { recall: RecallRow }) {
  return (
    <article class="recall">
      <header>
        <p class="recall-query">“<Pieces text={recall.query} />”</p>
        <p class="detail-figures">
          <Pieces text={nameOf(recall.actor)} />
          <a class="link mono" href={hrefOf(sessionRoute(recall.log, recall.seq))}>{`@${recall.seq}`}</a>
          <time title={timeText(recall.time)}>{agoText(recall.time)}</time>
        </p>
      </header>
      {recall.memories.length === 0 && <p class="faint">It was given nothing.</p>}
      <ul>{recall.memories.map((memory) => <Recalled key={memory.memory} memory={memory} />)}</ul>
    </article>
  );
}

function Recalled({ memory }: { memory: RecalledMemory }) {
  return (
    <li class="recalled">
      <span class="recalled-score" title={memory.score === null ? "the index gave no score" : "score"}>
        {memory.score === null ? "–" : memory.score.toFixed(2)}
        {memory.score !== null && <span class="recalled-bar" style={{ "--share": String(Math.max(0, Math.min(1, memory.score))) }} />}
      </span>
      <div>
        <Text text={memory.text} lines={8} />
        <p class="detail-figures">
          <span class={memory.state === "active" ? "" : "warn"}><Pieces text={memory.state} /></span>
          <span class="mono">{memory.memory.slice(0, 12)}</span>
          {memory.used.length === 0 ? (
            <span>used for nothing</span>
          ) : (
            <span>
              used for{" "}
              {memory.used.map((each) => (
                <a key={`${each.log}@${each.seq}`} class="link mono" href={hrefOf(sessionRoute(each.log, each.seq))}>{`@${each.seq} `}</a>
              ))}
            </span>
          )}
        </p>
      </div>
    </li>
  );
}

function Rows({ title, rows }: { title: string; rows: readonly MemoryRow[] }) {
  if (rows.length === 0) return null;
  return (
    <section class="block">
      <h2 class="label">{title}</h2>
      <ul>
        {rows.map((row) => (
          <li key={`${row.log}@${row.seq}`} class="recalled">
            <a class="link mono" href={hrefOf(sessionRoute(row.log, row.seq, { tab: "why" }))} title="the evidence">{`@${row.seq}`}</a>
            <div>
              <Text text={row.text} lines={8} />
              <p class="detail-figures">
                <span>{row.state || row.kind}</span>
                <Line text={nameOf(row.actor)} />
                <time>{agoText(row.time)}</time>
                {row.why && <Pieces text={row.why} />}
              </p>
            </div>
          </li>
        ))}
      </ul>
    </section>
  );
}
