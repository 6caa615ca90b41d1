/** The layout of a flame: calls as rows of boxes, as wide as what they used. */

import type { FlameNode } from "../shapes";

export type Measure = "dollars" | "tokens" | "time";

export interface FlameBox {
  readonly index: number;
  readonly depth: number;
  /** In shares of the whole width. */
  readonly left: number;
  readonly width: number;
}

function ownValue(node: FlameNode, measure: Measure): number {
  if (measure === "dollars") return node.spent.cost_usd ?? 0;
  if (measure === "tokens") return node.spent.input_tokens + node.spent.output_tokens;
  return node.took_us ?? 0;
}

/** Return what each node used. A node has at least what those below it used: calls at the same time
 * may take longer, taken together, than the call that made them.
 */
export function flameValues(nodes: readonly FlameNode[], measure: Measure): Float64Array {
  const values = new Float64Array(nodes.length);
  const below = new Float64Array(nodes.length);
  for (let index = nodes.length - 1; index >= 0; index -= 1) {
    const node = nodes[index]!;
    values[index] = Math.max(ownValue(node, measure), below[index]!);
    if (node.parent >= 0) below[node.parent] = below[node.parent]! + values[index]!;
  }
  return values;
}

export function childrenOf(nodes: readonly FlameNode[]): readonly (readonly number[])[] {
  const children: number[][] = nodes.map(() => []);
  nodes.forEach((node, index) => {
    if (node.parent >= 0) children[node.parent]!.push(index);
  });
  return children;
}

/** Return the boxes below `root` (-1: all) that are at least `least` wide, the widest levels first. */
export function flameBoxes(nodes: readonly FlameNode[], values: Float64Array, root: number, least = 0.0015): FlameBox[] {
  const children = childrenOf(nodes);
  const tops = root >= 0 ? [root] : nodes.flatMap((node, index) => (node.parent < 0 ? [index] : []));
  const whole = tops.reduce((sum, index) => sum + values[index]!, 0);
  if (whole <= 0) return [];
  const boxes: FlameBox[] = [];
  const put = (indexes: readonly number[], left: number, depth: number) => {
    for (const index of indexes) {
      const width = values[index]! / whole;
      if (width >= least) {
        boxes.push({ index, depth, left, width });
        put(children[index]!, left, depth + 1);
      }
      left += width;
    }
  };
  put(tops, 0, 0);
  return boxes;
}

/** Return the nodes from the top to one, itself included. */
export function pathTo(nodes: readonly FlameNode[], index: number): number[] {
  const path: number[] = [];
  for (let at = index; at >= 0; at = nodes[at]!.parent) path.unshift(at);
  return path;
}
