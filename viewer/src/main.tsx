/** The page begins: theme, token, source, and the first screen. */

import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/shell.css";
import "./styles/workbench.css";
import "./styles/panels.css";
import { render } from "preact";
import { App } from "./app";
import { startFeed } from "./base/feed";
import { HttpSource, sayHello } from "./base/http";
import { startKeys } from "./base/keys";
import { Model } from "./base/model";
import { listenToAddress } from "./base/router";
import { startTheme } from "./base/theme";
import { openFileSource } from "./base/file_source";

async function start(): Promise<void> {
  startTheme();
  startKeys();
  listenToAddress();
  const inFile = openFileSource();
  if (!inFile) await sayHello().catch(() => undefined); // the first answer says what is wrong
  const source = inFile ?? new HttpSource();
  const model = new Model(source);
  render(<App page={{ source, model }} />, document.getElementById("page")!);
  if (inFile) return;
  // News begin at the number that the store had before the first answer was read.
  source.store().get().then(
    (store) => startFeed(store.number),
    () => startFeed(0),
  );
}

void start();
