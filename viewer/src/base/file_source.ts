/** The hook for the page in one file. The file that `plait view -o` writes puts a maker of its source
 * here before the page starts; a page of a server finds none.
 */

import type { Source } from "../source";

let maker: (() => Source) | null = null;

export function provideFileSource(make: () => Source): void {
  maker = make;
}

export function openFileSource(): Source | null {
  return maker ? maker() : null;
}
