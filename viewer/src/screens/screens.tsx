/** The screen of an address. */

import { useEffect } from "preact/hooks";
import { usePage } from "../base/page";
import { route, type Route } from "../base/router";
import { plainText } from "../base/text";
import { Empty } from "../parts/states";
import { Workbench } from "../workbench/workbench";
import { Compare } from "./compare";
import { Cost } from "./cost";
import { Home } from "./home";
import { Inbox } from "./inbox";
import { MemoryScreen } from "./memory";
import { Verify } from "./verify";
import { WhatIf } from "./whatif";

const TITLES: Readonly<Record<Route["screen"], string>> = {
  home: "Sessions", inbox: "Inbox", cost: "Cost", memory: "Memory", verify: "Verify", compare: "Compare", whatif: "What if",
  session: "Session", lost: "No such page",
};

export function Screen() {
  const { model } = usePage();
  const now = route.value;
  const family = now.screen === "session" ? model.family.value : null;
  const title = family ? plainText(family.title || family.branches[0]!.name, 80) : TITLES[now.screen];
  useEffect(() => {
    document.title = `${title} · Plait`;
  }, [title]);
  switch (now.screen) {
    case "session":
      return <Workbench />;
    case "home":
      return <Home />;
    case "inbox":
      return <Inbox />;
    case "cost":
      return <Cost />;
    case "memory":
      return <MemoryScreen />;
    case "verify":
      return <Verify />;
    case "compare":
      return <Compare />;
    case "whatif":
      return <WhatIf />;
    case "lost":
      return (
        <main class="screen">
          <Empty>
            <h1 class="state-head">There is no such page.</h1>
            <p>
              Addresses are <code>/s/SESSION@42</code>, <code>/compare/A..B</code>, <code>/inbox</code>,{" "}
              <code>/cost</code>.
            </p>
            <p><a class="link" href="/">All sessions</a></p>
          </Empty>
        </main>
      );
  }
}
