/** How a session stands now, in the words of the server. */

import type { BranchShape } from "../shapes";

type Standing = Pick<BranchShape, "status" | "standing" | "is_due">;

export function StatusWord({ of: { status, standing, is_due } }: { of: Standing }) {
  const why = is_due ? "Its answer is there: it goes on when it is resumed" : undefined;
  return <span class={`status is-${is_due ? "due" : status}`} title={why}>{standing}</span>;
}
