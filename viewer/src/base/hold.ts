/** What somebody types stays where it is typed. */

import { useEffect } from "preact/hooks";
import { usePage } from "./page";

/** Keep the cursor where it is: while it is held, it does not go with the end of the session. */
export function useHold(isHeld: boolean): void {
  const { model } = usePage();
  useEffect(() => (isHeld ? model.hold() : undefined), [isHeld]);
}
