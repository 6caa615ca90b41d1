/** What may stand over any screen: dialogs, the palette, the box that finds. */

import { useKeys } from "../base/keys";
import { usePage } from "../base/page";
import { route } from "../base/router";
import { ActDialog } from "./acts";
import { Find } from "./find";
import { AskDialog } from "./inbox";
import { askShown, isPaletteOpen } from "./opened";
import { Palette } from "./palette";

/** Show the ask of the step at the cursor, and its button. */
function useAskKeys(): void {
  const { model, source } = usePage();
  const open = async () => {
    const place = model.cursor.peek();
    if (!place || route.peek().screen !== "session") return;
    const detail = await source.detail(place.log, model.step.peek()?.seq ?? place.seq).get().catch(() => null);
    const waiting = detail?.ask ? null : await source.inbox(place.log).get().catch(() => null);
    const ask = detail?.ask ?? waiting?.asks[0]?.id;
    if (ask) askShown.value = { session: place.log, ask };
  };
  useKeys([
    { key: "Ctrl+k", words: "palette: sessions, steps, files, acts", act: () => (isPaletteOpen.value = !isPaletteOpen.peek()), group: "Go" },
  ]);
  const isShown = route.value.screen === "session" && !source.isFile;
  useKeys(
    isShown
      ? [
          { key: "a", words: "grant what waits here (asks)", act: () => void open(), group: "Act" },
          { key: "d", words: "deny what waits here (asks)", act: () => void open(), group: "Act" },
        ]
      : [],
    [isShown],
  );
}

export function Dialogs() {
  useAskKeys();
  return (
    <>
      <AskDialog />
      <ActDialog />
      <Palette />
      <Find />
    </>
  );
}
