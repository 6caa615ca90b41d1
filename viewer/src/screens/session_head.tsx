/** The head of a screen about one session: its name, how it stands, and the way back. */

import type { ComponentChildren } from "preact";
import { useAnswer } from "../base/answer";
import { usePage } from "../base/page";
import { hrefOf, sessionRoute, splitPlace } from "../base/router";
import { StatusWord } from "../parts/status";
import { Line } from "../parts/text";

interface HeadProps {
  readonly session: string;
  readonly screen: string;
  readonly children?: ComponentChildren;
}

export function SessionHead({ session, screen, children }: HeadProps) {
  const { source } = usePage();
  const [name, seq] = splitPlace(session);
  const shown = useAnswer(session ? source.session(session) : null);
  const found = shown.value;
  const branches = useAnswer(session ? source.family(name) : null).value?.branches;
  const known = branches?.find((branch) => branch.log === found?.id)?.name;
  return (
    <header class="sheet-head">
      <h1 class="screen-head">{screen}</h1>
      {session && (
        <p class="sheet-session">
          <a class="link" href={hrefOf(sessionRoute(name, seq))}><Line text={found ? known || found.label || found.title || found.short : session} /></a>
          {found && seq === null && <StatusWord of={{ ...found, is_due: found.due }} />}
        </p>
      )}
      {children}
    </header>
  );
}
