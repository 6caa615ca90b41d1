/** The states of a panel that has nothing to show, not yet or not any more. */

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type { Failure, Shown } from "../base/answer";
import { noteFaults } from "../base/broken";
import { hrefOf, sessionRoute } from "../base/router";
import { Pieces } from "./text";

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="state">{children}</div>;
}

export function LoadingLine() {
  return (
    <div class="loading-line" role="progressbar" aria-label="loading">
    </div>
  );
}

/** The event that a damaged session breaks at; null: it is not known. */
function brokenPlace(failure: Failure): { readonly session: string; readonly seq: number } | null {
  const { broken } = (failure.fields["fields"] ?? {}) as { readonly broken?: { readonly session: string; readonly seq: number; readonly what: string } | null };
  return broken ?? null;
}

export function Broken({ failure, retry }: { failure: Failure; retry?: () => void }) {
  const place = brokenPlace(failure);
  useEffect(() => {
    if (place) noteFaults([{ ...place, what: "" }]);
  }, [place]);
  return (
    <div class="state is-bad" role="alert">
      <p class="state-head">{failure.isAway ? "The server is away" : <Pieces text={failure.message} />}</p>
      {failure.isAway && <p>The page goes on by itself when it is back.</p>}
      {failure.next && (
        <p>
          <Pieces text={failure.next} />
        </p>
      )}
      {place && (
        <p>
          <a class="link" href={hrefOf(sessionRoute(place.session, place.seq, { tab: "raw" }))}>Show the broken event @{place.seq}</a>
        </p>
      )}
      {retry && (
        <p>
          <button type="button" class="link" onClick={retry}>
            Ask again
          </button>
        </p>
      )}
    </div>
  );
}

export function Erased({ children }: { children: ComponentChildren }) {
  return <div class="erased">{children}</div>;
}

/** Draw an answer: its value, and the line that runs while it is on its way. */
export function Shows<T>({ shown, children }: { shown: Shown<T>; children: (value: T) => ComponentChildren }) {
  return (
    <>
      {shown.error && <Broken failure={shown.error} retry={shown.retry} />}
      {shown.isStale && !shown.error && <LoadingLine />}
      {shown.value !== undefined && children(shown.value)}
    </>
  );
}
