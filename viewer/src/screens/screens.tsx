/** The screen of an address. */

import { route } from "../base/router";
import { Empty } from "../parts/states";
import { Workbench } from "../workbench/workbench";

export function Screen() {
  const now = route.value;
  switch (now.screen) {
    case "session":
      return <Workbench />;
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
    default:
      return (
        <main class="screen">
          <Empty>{`This page has no screen ${now.screen} yet.`}</Empty>
        </main>
      );
  }
}
