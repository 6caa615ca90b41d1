/** Dialogs that may stand over any screen. */

import { AskDialog } from "./inbox";

export function Dialogs() {
  return <AskDialog />;
}
