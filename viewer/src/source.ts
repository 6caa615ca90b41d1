/** The one way from the panels to a store: a server, or the file that the page stands in. */

import type { Answer } from "./base/answer";
import type {
  ActShape,
  BlameShape,
  ComparisonShape,
  CostsShape,
  EventPage,
  FamilyShape,
  FileShape,
  FilesDiff,
  FlameShape,
  FolderShape,
  InboxPage,
  Json,
  MemoryPage,
  OutlineList,
  OutlineShape,
  PromptShape,
  RunList,
  SearchPage,
  SessionShape,
  StepDetail,
  StepPage,
  StoreShape,
  SummaryPage,
  TraceShape,
  TrackShape,
  VerifyShape,
} from "./shapes";

/** A document whose form is not described. */
export type Doc = { readonly [key: string]: Json };

/** A page in one file is a copy: of which place, when it was made, and what it lacks. */
export interface Copy {
  readonly log: string;
  readonly seq: number;
  readonly other: { readonly log: string; readonly seq: number } | null;
  readonly made: number;
  /** The last event of the session in the file, and its id. */
  readonly tip: number;
  readonly head: string;
  readonly leftOut: readonly string[];
}

/** Reads are lazy and cached. `place` is a revision such as `76de0d89@42`. */
export interface Source {
  readonly isFile: boolean;
  /** null: the page has a server. */
  readonly copy: Copy | null;
  store(): Answer<StoreShape>;
  sessions(filter: string, before?: string): Answer<SummaryPage>;
  search(words: string): Answer<SearchPage>;
  /** `isAll`: also timers, and asks whose answer no run has taken yet. */
  inbox(session: string, isAll?: boolean): Answer<InboxPage>;
  session(place: string): Answer<SessionShape>;
  family(session: string): Answer<FamilyShape>;
  outlines(logs: readonly string[]): Answer<OutlineList>;
  outline(log: string, from: number): Answer<OutlineShape>;
  steps(log: string, first: number, count: number): Answer<StepPage>;
  detail(log: string, seq: number): Answer<StepDetail>;
  track(log: string, seq: number): Answer<TrackShape>;
  events(log: string, first: number, count: number): Answer<EventPage>;
  folder(tree: string, path: string): Answer<FolderShape>;
  file(tree: string, path: string, first?: number, count?: number): Answer<FileShape>;
  diff(left: string, right: string, path?: string): Answer<FilesDiff>;
  blame(place: string, path: string): Answer<BlameShape>;
  prompt(place: string): Answer<PromptShape>;
  why(place: string, about: string): Answer<TraceShape>;
  influence(place: string, about: string): Answer<TraceShape>;
  compare(left: string, right: string): Answer<ComparisonShape>;
  costs(session: string, by: string): Answer<CostsShape>;
  flame(session: string): Answer<FlameShape>;
  memory(session: string): Answer<MemoryPage>;
  verify(session: string): Answer<VerifyShape>;
  runs(): Answer<RunList>;
  /** The address of a blob for an image or a download. */
  blobAddress(digest: string): string;
  /** Acts change the store, and are refused by a file. They answer with the new place. */
  act(place: string, verb: string, body: Json): Promise<ActShape>;
  post<T>(path: string, body: Json): Promise<T>;
  /** Forget what new events of a log have made old. */
  forget(log: string, seq: number): void;
}
