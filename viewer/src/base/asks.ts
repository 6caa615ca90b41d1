/** Asks in words: for whom one waits, and what was answered while no run has taken it yet. */

import type { AskShape, StepDetail } from "../shapes";

/** A principal without its sort: agent:pay/clerk is pay/clerk. */
export function nameOf(principal: string): string {
  return principal.replace(/^(agent|human|service):/, "");
}

type Waited = Pick<AskShape, "kind" | "by" | "signal">;

/** Tell whether the person who is served may end this wait. */
export function isForActor(ask: Waited, actor: string): boolean {
  if (ask.kind === "timer") return false;
  return ask.kind !== "verdict" || !ask.by || ask.by === actor;
}

/** For whom or what an ask waits: "you", "ann", "the signal built", "its time". */
export function waitsFor(ask: Waited, actor: string): string {
  if (ask.kind === "timer") return ask.signal ? `the signal ${ask.signal}` : "its time";
  return isForActor(ask, actor) ? "you" : nameOf(ask.by);
}

const ANSWER_WORDS: Readonly<Record<string, string>> = {
  ApprovalGranted: "granted", ApprovalDenied: "denied", QuestionAnswered: "answered", ToolResolved: "resolved",
  ValidationRecorded: "passed", Signalled: "signalled",
};

/** "granted by human:ana, not resumed yet"; "": it is not answered. */
export function answeredWords(ask: Pick<AskShape, "answered">): string {
  const answer = ask.answered;
  return answer ? `${ANSWER_WORDS[answer.kind] ?? "answered"} by ${nameOf(answer.actor)}, not resumed yet` : "";
}

/** The words with which a verdict was given: a text, or the reason in its detail; "": none. */
export function verdictReason({ fields }: Pick<StepDetail, "fields">): string {
  const said = fields["detail"] ?? null;
  if (typeof said === "string") return said;
  const reason = said !== null && typeof said === "object" && !Array.isArray(said) ? said["reason"] : "";
  return typeof reason === "string" ? reason : "";
}
