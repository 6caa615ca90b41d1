/** The screen of an address. */

import { route } from "../base/router";
import { Empty } from "../parts/states";
import { Workbench } from "../workbench/workbench";
import { Compare } from "./compare";
import { Cost } from "./cost";
import { Home } from "./home";
import { Inbox } from "./inbox";
import { MemoryScreen } from "./memory";
import { Verify } from "./verify";
import { WhatIf } from "./whatif";

export function Screen() {
  const now = route.value;
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
            <p class="state-head">There is no such page.</p>
            <p>
              Addresses are <code>/s/SESSION@42</code>, <code>/compare/A..B</code>, <code>/inbox</code>,{" "}
              <code>/cost</code>. <a class="link" href="/">All sessions</a>
            </p>
          </Empty>
        </main>
      );
  }
}
