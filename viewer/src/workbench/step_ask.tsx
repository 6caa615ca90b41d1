/** The ask of a step: the ways to answer it, or the answer that no run has taken yet. */

import { answeredWords, waitsFor } from "../base/asks";
import { usePage } from "../base/page";
import { AskBox } from "../parts/ask_box";
import { Icon } from "../parts/icons";
import { Pieces } from "../parts/text";
import { AskActs } from "../screens/ask";
import { Resume } from "../screens/run_line";
import { useActor, useAsks } from "../screens/standing";
import type { AskShape, StepDetail } from "../shapes";

export function StepAsk({ detail }: { detail: StepDetail }) {
  const { source } = usePage();
  const asks = useAsks(detail.step.log, "waiting");
  const actor = useActor();
  const ask = asks?.find((each) => each.id === detail.ask);
  if (source.isFile) return <p class="ask-box quiet">It waits for an answer. This page is a copy: answer with plait inbox.</p>;
  if (!ask) return asks ? <p class="ask-box quiet">It waits no more.</p> : null;
  if (ask.answered) return <AnsweredAsk ask={ask} />;
  const isCall = ask.kind === "approval" || ask.kind === "unknown";
  return (
    <>
      <p class="warn">{"Waits for "}<Pieces text={waitsFor(ask, actor)} /></p>
      {isCall ? <AskBox session={ask.short} ask={ask.id} kind={ask.kind as "approval" | "unknown"} arguments={ask.arguments} hasKeys /> : <AskActs key={ask.id} ask={ask} />}
    </>
  );
}

/** An answer that is on record, and the button with which the run hears it. */
function AnsweredAsk({ ask }: { ask: AskShape }) {
  return (
    <div class="ask-box" role="status">
      <p>
        <Icon name={ask.answered!.kind === "ApprovalDenied" ? "failed" : "passed"} class={ask.answered!.kind === "ApprovalDenied" ? "bad" : "good"} />{" "}
        <Pieces text={answeredWords(ask)} />
      </p>
      <Resume key={ask.id} session={ask.resume} />
    </div>
  );
}
