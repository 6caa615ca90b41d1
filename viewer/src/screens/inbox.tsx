/** What waits for people: a list, and one ask with everything it is decided by. */

import { useEffect, useRef, useState } from "preact/hooks";
import { useAnswer } from "../base/answer";
import { isForActor, waitsFor } from "../base/asks";
import { agoText } from "../base/format";
import { useKeys } from "../base/keys";
import { usePage } from "../base/page";
import { go, hrefOf, route } from "../base/router";
import { Dialog } from "../parts/dialog";
import { Icon } from "../parts/icons";
import { Empty, Shows } from "../parts/states";
import { Line } from "../parts/text";
import type { AskShape } from "../shapes";
import { ASK_ICONS, askLine, AskView, expiryText, nameOf } from "./ask";
import { newsCount } from "./live";
import { askShown } from "./opened";
import { moveFocus } from "./rows";
import { useActor } from "./standing";

export function Inbox() {
  const { source } = usePage();
  const now = route.value;
  void newsCount.value;
  const session = now.screen === "inbox" ? now.session : "";
  const chosen = (now.screen === "inbox" && now.ask) || "";
  const shown = useAnswer(source.inbox(session));
  // An ask that was answered here stays until one looks at another.
  const kept = useRef<AskShape | null>(null);
  const asks = shown.value?.asks ?? [];
  const found = asks.find((ask) => ask.id.startsWith(chosen || "-"));
  if (found) kept.current = found;
  const ask = found ?? (chosen && kept.current?.id.startsWith(chosen) ? kept.current : null);
  const isWide = useWide();
  useEffect(() => {
    if (isWide && !ask && asks[0] && now.screen === "inbox") go({ ...now, ask: asks[0].id.slice(0, 12) }, "replace");
  }, [isWide, ask, asks[0]?.id]);
  useKeys([
    { key: "j", words: "next ask", act: () => moveFocus(1), group: "Inbox" },
    { key: "k", words: "ask before", act: () => moveFocus(-1), group: "Inbox" },
  ]);
  return (
    <main class={`screen inbox ${ask ? "has-ask" : ""}`}>
      <section class="inbox-list scroll" aria-label="What waits">
        <h1 class="screen-head">Inbox</h1>
        {session && <p class="inbox-of quiet">of <span class="mono"><Line text={session} /></span> <a class="link" href={hrefOf({ screen: "inbox", session: "" })}>Show all</a></p>}
        <Shows shown={shown}>
          {(page) =>
            page.asks.length === 0 ? (
              <Empty>
                <p class="state-head">{session ? "Nothing waits in this session." : "Nothing waits for you."}</p>
                <p>Approvals, questions, unknown outcomes and gates of all sessions come here as they are asked.</p>
              </Empty>
            ) : (
              <ul>
                {page.asks.map((each) => (
                  <li key={each.id}>
                    <AskRow ask={each} isChosen={each.id === ask?.id} session={session} />
                  </li>
                ))}
              </ul>
            )
          }
        </Shows>
      </section>
      {ask && (
        <section class="inbox-ask scroll" aria-label="The ask" tabIndex={0}>
          {!isWide && <h1 class="unseen">Inbox</h1>}
          <a class="inbox-back button plain" href={hrefOf({ screen: "inbox", session, ask: "" })}><Icon name="left" /> All that waits</a>
          <AskView key={ask.id} ask={ask} />
        </section>
      )}
    </main>
  );
}

function useWide(): boolean {
  const [isWide, set] = useState(() => matchMedia("(min-width: 900px)").matches);
  useEffect(() => {
    const media = matchMedia("(min-width: 900px)");
    const look = () => set(media.matches);
    media.addEventListener("change", look);
    return () => media.removeEventListener("change", look);
  }, []);
  return isWide;
}

export function AskRow({ ask, isChosen, session }: { ask: AskShape; isChosen: boolean; session: string }) {
  const expires = expiryText(ask);
  const actor = useActor();
  const isOthers = actor !== "" && !isForActor(ask, actor);
  return (
    <a class="ask-row" data-row aria-current={isChosen ? "true" : undefined} href={hrefOf({ screen: "inbox", session, ask: ask.id.slice(0, 12) })}>
      <Icon name={ASK_ICONS[ask.kind]} class={ask.kind === "unknown" ? "bad" : "warn"} label={ask.kind} />
      <span class="ask-row-words">
        <Line text={askLine(ask)} />
        <span class="faint cut"><Line text={`${isOthers ? `waits for ${waitsFor(ask, actor)} · ` : ""}${nameOf(ask.actor)} · ${ask.name}`} /></span>
      </span>
      <span class="faint ask-row-time">
        {agoText(ask.since)}
        {expires && <span class={ask.is_late ? "bad" : ""}>{expires}</span>}
      </span>
    </a>
  );
}

/** An ask over the workbench: the one of the step that is shown. */
export function AskDialog() {
  const { source } = usePage();
  const wanted = askShown.value;
  const shown = useAnswer(wanted ? source.inbox(wanted.session, true) : null);
  const actor = useActor();
  void newsCount.value;
  const kept = useRef<AskShape | null>(null);
  if (!wanted) {
    kept.current = null;
    return null;
  }
  if (kept.current?.id !== wanted.ask) kept.current = null;
  const ask = kept.current ?? shown.value?.asks.find((each) => each.id === wanted.ask) ?? null;
  kept.current = ask;
  return (
    <Dialog title={ask && !ask.answered ? `Waits for ${waitsFor(ask, actor)}` : "The ask"} class="ask-dialog" onClose={() => (askShown.value = null)}>
      <Shows shown={shown}>
        {() => (ask ? <AskView key={ask.id} ask={ask} /> : <p class="quiet">It waits no more: somebody answered it, or it ended.</p>)}
      </Shows>
    </Dialog>
  );
}
