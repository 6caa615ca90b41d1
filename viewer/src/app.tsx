/** The frame of all screens: the bar, the screen of the address, keys that work everywhere. */

import { effect, untracked } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { feedHeard, feedState } from "./base/feed";
import { timeText } from "./base/format";
import { useKeys } from "./base/keys";
import { PageContext, type Page } from "./base/page";
import { go, route } from "./base/router";
import { isHelpOpen, KeysHelp } from "./parts/keys_help";
import { Bar } from "./parts/bar";
import { Dialogs } from "./screens/dialogs";
import { Screen } from "./screens/screens";

const home = { screen: "home", filter: "" } as const;
const inbox = { screen: "inbox", session: "" } as const;
const cost = { screen: "cost", session: "" } as const;

function AwayLine() {
  if (feedState.value !== "away") return null;
  const since = feedHeard.value ? ` Shown is the state of ${timeText(feedHeard.value * 1000)}.` : "";
  return (
    <div class="away-line" role="status">
      {`The server is away.${since} The page goes on by itself when it is back.`}
    </div>
  );
}

/** What a page in one file is a copy of. */
function CopyLine({ page }: { page: Page }) {
  const copy = page.source.copy;
  if (!copy) return null;
  const lacks = copy.leftOut.length ? ` Not in it: ${copy.leftOut.slice(0, 3).join("; ")}${copy.leftOut.length > 3 ? "; …" : ""}.` : "";
  return (
    <div class="copy-line" role="note" title={copy.leftOut.join("\n")}>
      {`A copy of ${copy.log.slice(-12, -4)}, made ${timeText(copy.made)}: all events up to @${copy.tip}, head ${copy.head.slice(0, 12)}.${lacks}`}
    </div>
  );
}

export function App({ page }: { page: Page }) {
  useKeys([
    { key: "g h", words: "home", act: () => go(home), group: "Go" },
    { key: "g i", words: "inbox", act: () => go(inbox), group: "Go" },
    { key: "g c", words: "cost", act: () => go(cost), group: "Go" },
    { key: "?", words: "these keys", act: () => (isHelpOpen.value = true), group: "Go" },
  ]);
  useEffect(
    () =>
      effect(() => {
        const now = route.value;
        if (now.screen === "session") untracked(() => void page.model.open(now));
      }),
    [],
  );
  return (
    <PageContext.Provider value={page}>
      <div class="shell">
        <Bar />
        <AwayLine />
        <CopyLine page={page} />
        <Screen />
      </div>
      <KeysHelp />
      <Dialogs />
    </PageContext.Provider>
  );
}
