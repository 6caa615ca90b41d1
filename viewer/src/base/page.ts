/** What the components of a page share: its source and its model. */

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Source } from "../source";
import type { Model } from "./model";

export interface Page {
  readonly source: Source;
  readonly model: Model;
}

export const PageContext = createContext<Page | null>(null);

export function usePage(): Page {
  const page = useContext(PageContext);
  if (!page) throw new Error("A component stands outside of the page.");
  return page;
}
