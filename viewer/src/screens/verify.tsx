/** Verify: read every event of a session again, and say which is the first that does not hold. */

import { useEffect, useState } from "preact/hooks";
import { useAnswer } from "../base/answer";
import { noteFaults } from "../base/broken";
import { countText } from "../base/format";
import { usePage } from "../base/page";
import { hrefOf, route, sessionRoute } from "../base/router";
import { Icon } from "../parts/icons";
import { Broken, LoadingLine } from "../parts/states";
import { Pieces } from "../parts/text";
import type { VerifyShape } from "../shapes";
import { SessionHead } from "./session_head";

export function Verify() {
  const { source } = usePage();
  const now = route.value;
  const [turn, setTurn] = useState(0);
  const session = now.screen === "verify" ? now.session : "";
  const shown = useAnswer(source.verify(session));
  void turn;
  return (
    <main class="screen scroll sheet">
      <SessionHead session={session} screen="Verify" />
      {shown.error && <Broken failure={shown.error} retry={shown.retry} />}
      {shown.isStale && !shown.error && (
        <div class="verify-run" role="status"><LoadingLine /><p class="quiet">Every event is read again, and its hash is computed.</p></div>
      )}
      {shown.value && !shown.isStale && <Outcome found={shown.value} />}
      {shown.value && (
        <p class="block">
          <button type="button" class="button" onClick={() => { source.forget(shown.value!.session, 0); setTurn(turn + 1); }}>
            <Icon name="taken" /> Verify again
          </button>
        </p>
      )}
    </main>
  );
}

function Outcome({ found }: { found: VerifyShape }) {
  useEffect(() => noteFaults(found.faults), [found]);
  return (
    <>
      <section class={`verdict ${found.ok ? "is-good" : "is-bad"}`} role="status">
        <Icon name={found.ok ? "passed" : "failed"} />
        <div>
          <p class="verdict-head">{found.ok ? "Every event is as it was written." : "This session is damaged."}</p>
          <p class="quiet">{`${countText(found.events, "event")} of it and of what it comes from, up to @${found.seq}.`}</p>
        </div>
      </section>
      {found.faults.length > 0 && (
        <section class="block">
          <h2 class="label">{found.faults.length === 1 ? "What does not hold" : "What does not hold, the first first"}</h2>
          <ol class="faults">
            {found.faults.map((fault, index) => (
              <li key={index}>
                {fault.session && fault.seq !== null ? (
                  <a class="link mono" href={hrefOf(sessionRoute(fault.session, fault.seq, { tab: "raw" }))}>{`${fault.session.slice(-12, -4) || fault.session}@${fault.seq}`}</a>
                ) : (
                  <span class="faint">the store</span>
                )}
                <Pieces text={fault.what} />
              </li>
            ))}
          </ol>
          <p class="quiet">What is whole is shown as ever. <code>plait verify {found.session.slice(-12, -4)}</code> says it in the shell.</p>
        </section>
      )}
      <section class="block">
        <h2 class="label">What this did not check</h2>
        <dl class="unchecked">
          {found.unchecked.map((each, index) => [
            <dt key={`${index}-what`}><Pieces text={each.what} /></dt>,
            <dd key={index} class="faint"><Pieces text={each.why} /></dd>,
          ])}
        </dl>
      </section>
    </>
  );
}
