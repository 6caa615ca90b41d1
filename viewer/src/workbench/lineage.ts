/** The rows that lead to the cursor: the past of the place, through forks and merges. */

import { computed, type ReadonlySignal } from "@preact/signals";
import type { Model } from "../base/model";
import type { Rows } from "../base/rows";

/** Return for each stretch whether the one at `stretch` comes from it. */
export function stretchesBefore(rows: Rows, stretch: number): Uint8Array {
  const found = new Uint8Array(rows.family.stretches.length);
  const stack = [stretch];
  while (stack.length) {
    const index = stack.pop()!;
    if (found[index]) continue;
    found[index] = 1;
    stack.push(...(rows.family.stretches[index]?.parents ?? []));
  }
  return found;
}

const known = new WeakMap<Model, ReadonlySignal<Uint8Array | null>>();

/** The stretches in the past of the cursor; null: nothing is shown yet. */
export function lineageOf(model: Model): ReadonlySignal<Uint8Array | null> {
  let found = known.get(model);
  if (!found) {
    const stretch = computed(() => (model.rows.value && model.row.value >= 0 ? model.rows.value.stretchAt(model.row.value) : -1));
    found = computed(() => (model.rows.value && stretch.value >= 0 ? stretchesBefore(model.rows.value, stretch.value) : null));
    known.set(model, found);
  }
  return found;
}
