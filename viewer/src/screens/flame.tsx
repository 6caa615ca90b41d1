/** The flame: boxes that are walked through with the arrows, and zoomed with a click. */

import { useMemo, useRef, useState } from "preact/hooks";
import { allTokens, costText, dollarsText, numberText, tokensText, tookText } from "../base/format";
import { hrefOf, sessionRoute } from "../base/router";
import { plainText } from "../base/text";
import { Line } from "../parts/text";
import type { FlameNode } from "../shapes";
import { childrenOf, flameBoxes, flameValues, pathTo, type Measure } from "./flame_layout";

const MEASURES: readonly [Measure, string][] = [["dollars", "Dollars"], ["tokens", "Tokens"], ["time", "Time"]];
const BOXES_MAX = 400;

function figure(node: FlameNode, value: number, measure: Measure): string {
  if (measure === "tokens") return tokensText(value);
  if (measure === "time") return node.took_us === null && value === 0 ? "not ended" : tookText(value);
  return node.spent.unpriced > 0 ? costText(node.spent) : dollarsText(value);
}

interface FlameProps {
  readonly nodes: readonly FlameNode[];
  readonly isCut: boolean;
  /** Without: dollars and tokens alone. */
  readonly hasTime?: boolean;
}

export function Flame({ nodes, isCut, hasTime = true }: FlameProps) {
  const hasPrices = nodes.some((node) => (node.spent.cost_usd ?? 0) > 0);
  const [measure, setMeasure] = useState<Measure>(hasPrices ? "dollars" : "tokens");
  const [root, setRoot] = useState(-1);
  const [focused, setFocused] = useState(-1);
  const box = useRef<HTMLDivElement>(null);
  const values = useMemo(() => flameValues(nodes, measure), [nodes, measure]);
  const boxes = useMemo(() => flameBoxes(nodes, values, root).slice(0, BOXES_MAX), [nodes, values, root]);
  const children = useMemo(() => childrenOf(nodes), [nodes]);
  const depth = boxes.reduce((most, each) => Math.max(most, each.depth), 0) + 1;
  const unpriced = nodes.reduce((sum, node) => sum + (node.parent < 0 ? node.spent.unpriced : 0), 0);
  const current = boxes.some((each) => each.index === focused) ? focused : (boxes[0]?.index ?? -1);
  const shownNode = nodes[focused >= 0 ? focused : root >= 0 ? root : 0];
  const shownIndex = focused >= 0 ? focused : root >= 0 ? root : 0;
  const move = (to: number | undefined) => {
    if (to === undefined || to < 0 || !boxes.some((each) => each.index === to)) return;
    setFocused(to);
    box.current?.querySelector<HTMLElement>(`[data-node="${to}"]`)?.focus();
  };
  const onKey = (event: KeyboardEvent) => {
    const node = nodes[current];
    if (!node) return;
    const beside = node.parent >= 0 ? children[node.parent]! : nodes.flatMap((each, index) => (each.parent < 0 ? [index] : []));
    const at = beside.indexOf(current);
    if (event.key === "ArrowDown") move(children[current]!.find((each) => boxes.some((shown) => shown.index === each)));
    else if (event.key === "ArrowUp") move(node.parent);
    else if (event.key === "ArrowRight") move(beside[at + 1]);
    else if (event.key === "ArrowLeft") move(beside[at - 1]);
    else if (event.key === "Escape" && root >= 0) setRoot(nodes[root]!.parent);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <section class="flame" aria-label="Calls by what they used">
      <div class="flame-head">
        <div class="choice" role="group" aria-label="Width">
          {MEASURES.filter(([name]) => hasTime || name !== "time").map(([name, words]) => (
            <button key={name} type="button" aria-pressed={measure === name} onClick={() => setMeasure(name)}>{words}</button>
          ))}
        </div>
        <nav class="flame-path" aria-label="Zoomed to">
          {root >= 0 && <button type="button" class="link" onClick={() => setRoot(-1)}>all</button>}
          {root >= 0 && pathTo(nodes, root).map((index) => (
            <span key={index}>
              <span class="faint">›</span>{" "}
              {index === root ? <Line text={nodes[index]!.name} /> : <button type="button" class="link" onClick={() => setRoot(index)}><Line text={nodes[index]!.name} /></button>}
            </span>
          ))}
        </nav>
      </div>
      {boxes.length === 0 ? (
        <p class="quiet">{measure === "dollars" ? "No price is known for any of these calls. Look by tokens." : "Nothing was used yet."}</p>
      ) : (
        <div ref={box} class="flame-boxes" style={{ height: `${depth * 24}px` }} role="group" aria-label="Calls. Arrows move, Enter zooms." onKeyDown={onKey}>
          {boxes.map((each) => {
            const node = nodes[each.index]!;
            const words = `${node.name} ${figure(node, values[each.index]!, measure)}, ${node.kind}`;
            return (
              <button
                key={each.index}
                type="button"
                data-node={each.index}
                tabIndex={each.index === current ? 0 : -1}
                class={`flame-box is-${node.kind} ${node.spent.unpriced > 0 && measure === "dollars" ? "is-unpriced" : ""} ${each.index === focused ? "is-shown" : ""}`}
                style={{ left: `${each.left * 100}%`, width: `${each.width * 100}%`, top: `${each.depth * 24}px` }}
                aria-label={plainText(words)}
                title={plainText(words)}
                onPointerEnter={() => setFocused(each.index)}
                onFocus={() => setFocused(each.index)}
                onClick={() => setRoot(each.index === root ? node.parent : each.index)}
              >
                {each.width > 0.02 && <Line text={node.name} />}{" "}
                {each.width > 0.12 && <span class="flame-figure">{figure(node, values[each.index]!, measure)}</span>}
              </button>
            );
          })}
        </div>
      )}
      {shownNode && <FlameWords node={shownNode} value={values[shownIndex]!} measure={measure} />}
      {unpriced > 0 && measure === "dollars" && (
        <p class="warn flame-note">{`${numberText(unpriced)} ${unpriced === 1 ? "reply has" : "replies have"} no known price, and no width here. By tokens they are seen.`}</p>
      )}
      {isCut && <p class="faint flame-note">There are more calls than are shown.</p>}
    </section>
  );
}

function FlameWords({ node, value, measure }: { node: FlameNode; value: number; measure: Measure }) {
  const { spent } = node;
  return (
    <p class="flame-words">
      <b><Line text={node.name} /></b>
      <span class="faint">{node.kind}</span>
      <span>{figure(node, value, measure)}</span>
      <span class="faint">
        {`${numberText(spent.input_tokens)} in${spent.cached_tokens ? ` (${numberText(spent.cached_tokens)} cached)` : ""}, ${numberText(spent.output_tokens)} out · ${spent.model_calls} model calls, ${spent.tool_calls} tool calls`}
        {allTokens(spent) > 0 && measure !== "dollars" && ` · ${costText(spent)}`}
        {node.took_us !== null && measure !== "time" && ` · ${tookText(node.took_us)}`}
      </span>
      {node.log && node.seq > 0 && <a class="link mono" href={hrefOf(sessionRoute(node.log, node.seq))}>{`@${node.seq}`}</a>}
    </p>
  );
}
