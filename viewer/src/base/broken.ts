/** The events of which a check has said that they are broken: every list marks them. */

import { signal } from "@preact/signals";
import type { FaultRow, StepShape } from "../shapes";

const brokenPlaces = signal<ReadonlySet<string>>(new Set());

export function noteFaults(faults: readonly FaultRow[]): void {
  const found = faults.flatMap((fault) => (fault.session && fault.seq !== null ? [`${fault.session}@${fault.seq}`] : []));
  if (found.some((place) => !brokenPlaces.peek().has(place))) brokenPlaces.value = new Set([...brokenPlaces.peek(), ...found]);
}

export function isBroken(step: StepShape): boolean {
  const places = brokenPlaces.value;
  return places.size > 0 && step.events.some((seq) => places.has(`${step.log}@${seq}`));
}
