/** Cost: a flame over calls, sums by name, and how a budget burns down. */

import { useMemo, useState } from "preact/hooks";
import { useAnswer } from "../base/answer";
import { allTokens, costText, countText, numberText } from "../base/format";
import { usePage } from "../base/page";
import { hrefOf, route, sessionRoute } from "../base/router";
import { Empty, Shows } from "../parts/states";
import { Line } from "../parts/text";
import type { CostRow, CostsShape, FlameNode, SpentShape } from "../shapes";
import { Burndown } from "./burndown";
import { Flame } from "./flame";
import { newsCount } from "./live";
import { SessionHead } from "./session_head";

const OF_STORE: readonly [string, string][] = [["model", "Model"], ["agent", "Agent"], ["session", "Session"], ["user", "User"], ["project", "Project"], ["day", "Day"]];
const OF_SESSION: readonly [string, string][] = [["agent", "Agent"], ["model", "Model"], ["session", "Branch"], ["run", "Run"], ["day", "Day"]];

export function Cost() {
  const now = route.value;
  void newsCount.value;
  const session = now.screen === "cost" ? now.session : "";
  const names = session ? OF_SESSION : OF_STORE;
  const [by, setBy] = useState(names[0]![0]);
  const chosen = names.some(([name]) => name === by) ? by : names[0]![0];
  return (
    <main class="screen scroll sheet is-wide">
      <SessionHead session={session} screen="Cost" />
      <Total session={session} />
      {session ? <SessionFlame session={session} /> : <StoreFlame />}
      {session && <Burndown session={session} />}
      <section class="block">
        <div class="cost-by">
          <h2 class="label" id="cost-by">By</h2>
          <div class="choice" role="group" aria-labelledby="cost-by">
            {names.map(([name, words]) => (
              <button key={name} type="button" aria-pressed={chosen === name} onClick={() => setBy(name)}>{words}</button>
            ))}
          </div>
        </div>
        <CostTable session={session} by={chosen} />
      </section>
    </main>
  );
}

function Total({ session }: { session: string }) {
  const { source } = usePage();
  const shown = useAnswer(source.costs(session, "model"));
  const isFork = !!useAnswer(session ? source.session(session) : null).value?.parent;
  return (
    <Shows shown={shown}>
      {({ total, not_merged: lost }) => (
        <>
          <dl class="totals">
            <Figure words={isFork ? "spent, with what it was forked from" : "spent"} value={costText(total)} isWarn={total.unpriced > 0} />
            <Figure words="tokens in" value={numberText(total.input_tokens)} />
            <Figure words="of that cached" value={`${numberText(total.cached_tokens)}${total.input_tokens ? ` (${Math.round((100 * total.cached_tokens) / total.input_tokens)}%)` : ""}`} />
            <Figure words="tokens out" value={numberText(total.output_tokens)} />
            <Figure words="model calls" value={numberText(total.model_calls)} />
            <Figure words="tool calls" value={numberText(total.tool_calls)} />
            {lost && allTokens(lost) > 0 && <Figure words="of it in branches that were not merged" value={costText(lost)} />}
          </dl>
          {total.estimated_tokens > 0 && <p class="faint">{`${numberText(total.estimated_tokens)} of the tokens are estimates: the provider did not say.`}</p>}
        </>
      )}
    </Shows>
  );
}

function Figure({ words, value, isWarn = false }: { words: string; value: string; isWarn?: boolean }) {
  return (
    <div>
      <dt class="faint">{words}</dt>
      <dd class={isWarn ? "warn" : ""}>{value}</dd>
    </div>
  );
}

function SessionFlame({ session }: { session: string }) {
  const { source } = usePage();
  const shown = useAnswer(source.flame(session));
  const names = useNames();
  const nodes = useMemo(() => shown.value?.nodes.map((node) => (node.kind === "session" ? { ...node, name: names.get(node.log) ?? node.name } : node)) ?? [], [shown.value, names]);
  return (
    <Shows shown={shown}>
      {(flame) => (flame.nodes.length === 0 ? <Empty>Nothing was called in this session yet.</Empty> : <Flame nodes={nodes} isCut={flame.is_cut} />)}
    </Shows>
  );
}

function plus(one: SpentShape, two: SpentShape): SpentShape {
  const sum = { ...one };
  for (const key of Object.keys(sum) as (keyof SpentShape)[])
    if (key === "cost_usd") sum.cost_usd = one.cost_usd === null && two.cost_usd === null ? null : (one.cost_usd ?? 0) + (two.cost_usd ?? 0);
    else sum[key] = one[key] + two[key];
  return sum;
}

/** Make the nodes of a flame of sums: a level for each name. */
export function nodesOfCosts(costs: CostsShape, names: ReadonlyMap<string, string> = new Map()): FlameNode[] {
  interface Group { readonly name: string; readonly rows: CostRow[]; readonly depth: number }
  const nodes: FlameNode[] = [];
  const put = (rows: readonly CostRow[], depth: number, parent: number) => {
    const by = costs.by[depth];
    if (by === undefined) return;
    const groups = new Map<string, Group>();
    for (const row of rows) {
      const name = row.names[by] ?? "";
      const group = groups.get(name) ?? { name, rows: [], depth };
      group.rows.push(row);
      groups.set(name, group);
    }
    for (const group of groups.values()) {
      if (group.name === "" && by === "model") continue; // tools have no model, tokens or price
      const index = nodes.length;
      const spent = group.rows.map((row) => row.spent).reduce(plus);
      const kind = by === "model" ? "model" : by === "session" ? "session" : "call";
      nodes.push({ name: (by === "session" ? names.get(group.name) ?? group.name.slice(-12, -4) : group.name) || `no ${by}`, kind, log: by === "session" ? group.name : "", seq: 0, depth, parent, began: 0, took_us: null, spent });
      put(group.rows, depth + 1, index);
    }
  };
  put(costs.rows, 0, -1);
  return nodes;
}

/** The names of sessions by log, as far as the last active ones have them. */
function useNames(): ReadonlyMap<string, string> {
  const { source } = usePage();
  const sessions = useAnswer(source.sessions("")).value?.sessions;
  return useMemo(() => new Map((sessions ?? []).map((session) => [session.log, session.name])), [sessions]);
}

function StoreFlame() {
  const { source } = usePage();
  const shown = useAnswer(source.costs("", "project,session,model"));
  const names = useNames();
  const nodes = useMemo(() => (shown.value ? nodesOfCosts(shown.value, names) : []), [shown.value, names]);
  return <Shows shown={shown}>{() => (nodes.length === 0 ? <Empty>No model was asked in this store yet.</Empty> : <Flame nodes={nodes} isCut={false} hasTime={false} />)}</Shows>;
}

const ROWS_AT_FIRST = 50;

function CostTable({ session, by }: { session: string; by: string }) {
  const { source } = usePage();
  const [most, setMost] = useState(ROWS_AT_FIRST);
  const shown = useAnswer(source.costs(session, by));
  const names = useNames();
  return (
    <Shows shown={shown}>
      {(costs) => {
        const largest = Math.max(...costs.rows.map((row) => row.spent.cost_usd ?? 0), 1e-12);
        const rows = [...costs.rows].sort((a, b) => (by === "day" ? (a.names["day"] ?? "") < (b.names["day"] ?? "") ? 1 : -1 : (b.spent.cost_usd ?? 0) - (a.spent.cost_usd ?? 0) || allTokens(b.spent) - allTokens(a.spent)));
        return (
          <>
            <div class="table-scroll" tabIndex={0} role="region" aria-label={`Costs by ${by}`}>
              <table class="figures">
                <thead>
                  <tr>
                    <th scope="col">{by === "session" && session ? "branch" : by}</th>
                    <th scope="col">model calls</th>
                    <th scope="col">tool calls</th>
                    <th scope="col">in</th>
                    <th scope="col">cached</th>
                    <th scope="col">out</th>
                    <th scope="col">cost</th>
                  </tr>
                </thead>
                <tbody>
                  {rows.slice(0, most).map((row, index) => <CostLine key={index} row={row} by={by} largest={largest} names={names} />)}
                </tbody>
              </table>
            </div>
            {rows.length > most && <p><button type="button" class="link" onClick={() => setMost(most + 500)}>{countText(rows.length - most, "more row")}</button></p>}
          </>
        );
      }}
    </Shows>
  );
}

interface LineProps {
  readonly row: CostRow;
  readonly by: string;
  readonly largest: number;
  readonly names: ReadonlyMap<string, string>;
}

function CostLine({ row, by, largest, names }: LineProps) {
  const { spent } = row;
  const name = row.names[by] ?? null;
  const noName = by === "model" ? "tools, no model" : by === "agent" ? "outside of agents" : `no ${by}`;
  const share = (spent.cost_usd ?? 0) / largest;
  return (
    <tr>
      <th scope="row">
        {name === null || name === "" ? <span class="faint">{noName}</span> : by === "session" ? <a class="link" href={hrefOf(sessionRoute(name))}><Line text={names.get(name) ?? (name.length > 20 ? name.slice(-12, -4) : name)} /></a> : <Line text={name} />}
      </th>
      <td>{numberText(spent.model_calls)}</td>
      <td>{numberText(spent.tool_calls)}</td>
      <td>{numberText(spent.input_tokens)}</td>
      <td>{numberText(spent.cached_tokens)}</td>
      <td>{numberText(spent.output_tokens)}</td>
      <td class="figures-cost">
        <span class="figures-bar" style={{ "--share": String(share) }} aria-hidden="true" />
        <span class={spent.unpriced > 0 ? "warn" : ""}>{spent.model_calls === 0 ? "–" : costText(spent)}</span>
      </td>
    </tr>
  );
}
