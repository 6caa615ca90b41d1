/** The asks of a session as they are now, answered or not. They follow the feed. */

import { useAnswer } from "../base/answer";
import { usePage } from "../base/page";
import type { AskShape } from "../shapes";
import { newsCount } from "./live";

const MAY_WAIT = new Set(["waiting", "interrupted", "paused", "running"]);

/** Return the asks of a session and of the branches of its run; null: they are not known (yet). */
export function useAsks(session: string | undefined, status: string): readonly AskShape[] | null {
  const { source } = usePage();
  void newsCount.value;
  const isAsked = session !== undefined && !source.isFile && MAY_WAIT.has(status);
  return useAnswer(isAsked ? source.inbox(session, true) : null).value?.asks ?? null;
}

/** The person who is served; "": nobody is, or it is not known yet. */
export function useActor(): string {
  const { source } = usePage();
  return useAnswer(source.isFile ? null : source.store()).value?.actor ?? "";
}
