/** The page begins: theme, token, source, and the first screen. */

import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/shell.css";
import "./styles/workbench.css";
import "./styles/panels.css";
import "./styles/screens.css";
import { render } from "preact";
import { App } from "./app";
import { startFeed } from "./base/feed";
import { HttpSource, sayHello } from "./base/http";
import { startKeys } from "./base/keys";
import { Model } from "./base/model";
import { go, listenToAddress, route, sessionRoute } from "./base/router";
import { startTheme } from "./base/theme";
import type { Copy } from "./source";
import { FileSource } from "./file/file_source";
import { Pieces } from "./file/pieces";
import { listenForScreens } from "./screens/live";

/** Begin a page in one file at the place that it was written for. */
function openCopy({ log, seq, other }: Copy): void {
  if (other) go({ screen: "compare", left: `${log}@${seq}`, right: `${other.log}@${other.seq}` }, "replace");
  else go(sessionRoute(log, seq), "replace");
}

async function start(): Promise<void> {
  startTheme();
  startKeys();
  listenToAddress();
  const pieces = Pieces.inPage();
  if (!pieces) await sayHello().catch(() => undefined); // the first answer says what is wrong
  const source = pieces ? await FileSource.open(pieces) : new HttpSource();
  if (source.copy && route.value.screen === "home") openCopy(source.copy);
  const model = new Model(source);
  listenForScreens();
  render(<App page={{ source, model }} />, document.getElementById("page")!);
  if (pieces) return;
  // News begin at the number that the store had before the first answer was read.
  source.store().get().then(
    (store) => startFeed(store.number),
    () => startFeed(0),
  );
}

void start();
