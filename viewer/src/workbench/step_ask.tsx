/** The ask of a step: for whom it waits, and the ways to answer it. */

import { waitsFor } from "../base/asks";
import { usePage } from "../base/page";
import { Pieces } from "../parts/text";
import { AskActs } from "../screens/ask_acts";
import { useActor, useAsks } from "../screens/standing";
import type { StepDetail } from "../shapes";

export function StepAsk({ detail }: { detail: StepDetail }) {
  const { source } = usePage();
  const asks = useAsks(detail.step.log, "waiting");
  const actor = useActor();
  const ask = asks?.find((each) => each.id === detail.ask);
  if (source.isFile) return <p class="ask-box quiet">It waits for an answer. This page is a copy: answer with plait inbox.</p>;
  if (!ask) return asks ? <p class="ask-box quiet">It waits no more.</p> : null;
  return (
    <div class="ask-box">
      {!ask.answered && <p class="warn">{"Waits for "}<Pieces text={waitsFor(ask, actor)} /></p>}
      <AskActs key={ask.id} ask={ask} />
    </div>
  );
}
