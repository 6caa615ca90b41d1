/** The one way from the panels to a store: a server, or the file that the page stands in. */

import type { Answer } from "./base/answer";
import type {
  BlameShape,
  ComparisonShape,
  FamilyShape,
  FileShape,
  FilesDiff,
  FolderShape,
  Json,
  OutlineShape,
  StepDetail,
  StepPage,
  SummaryPage,
  TrackShape,
} from "./shapes";

export type Doc = { readonly [key: string]: Json };

export interface StoreDoc {
  readonly store: string;
  readonly address: string;
  readonly version: string;
  readonly actor: string;
  readonly read_only: boolean;
  readonly can_run: boolean;
  readonly number: number;
}

/** A session at a place, as `plait show --json` has it. */
export interface SessionDoc {
  readonly id: string;
  readonly short: string;
  readonly place: number;
  readonly title: string;
  readonly label: string | null;
  readonly status: string;
  readonly tree: string | null;
  readonly [key: string]: Json;
}

export interface EventDoc {
  readonly id: string;
  readonly session: string;
  readonly seq: number;
  readonly kind: string;
  readonly time: number;
  readonly actor: string;
  readonly behalf: string | null;
  readonly origin: string | null;
  readonly run: string | null;
  readonly call: string | null;
  readonly parents: readonly string[];
  readonly causes: readonly string[];
  /** null: it was erased, is damaged, or was written by a newer Plait; `state` says which. */
  readonly body: Json;
  readonly state?: string;
  readonly [key: string]: Json | undefined;
}

export interface EventsDoc {
  readonly events: readonly EventDoc[];
}

export interface TraceStep {
  readonly depth: number;
  readonly how: string;
  readonly id: string;
  readonly session: string;
  readonly seq: number;
  readonly kind: string;
  readonly branch: string;
  readonly actor: string;
  readonly time: number;
  readonly says: string;
  readonly relation: "subject" | "decision" | "context" | "order";
  readonly reason: string;
  readonly placement: string;
  readonly files: readonly string[];
}

export interface TraceDoc {
  readonly about: string;
  readonly complete: boolean;
  readonly steps: readonly TraceStep[];
}

export interface PromptDoc {
  readonly session: string;
  readonly place: number;
  readonly event: string;
  readonly agent: string;
  readonly model: string;
  /** True: what is rebuilt has the digest that was recorded. */
  readonly as_sent: boolean;
  readonly digest: string;
  readonly recorded: string;
  readonly instruction: string;
  readonly tools: readonly Doc[];
  readonly parameters: Doc;
  readonly output: Json;
  readonly view: Json;
  readonly turns: readonly Doc[];
  /** Index of the first turn that this agent was not sent before; null: unknown. */
  readonly new_from: number | null;
  readonly left_out: readonly {
    readonly session: string;
    readonly place: number;
    readonly kind: string;
    readonly why: string;
  }[];
}

/** Reads are lazy and cached. `place` is a revision such as `76de0d89@42`. */
export interface Source {
  readonly isFile: boolean;
  store(): Answer<StoreDoc>;
  sessions(filter: string, before?: string): Answer<SummaryPage>;
  search(words: string): Answer<Doc>;
  inbox(session: string): Answer<Doc>;
  session(place: string): Answer<SessionDoc>;
  family(session: string): Answer<FamilyShape>;
  outlines(logs: readonly string[]): Answer<readonly OutlineShape[]>;
  outline(log: string, from: number): Answer<OutlineShape>;
  steps(log: string, first: number, count: number): Answer<StepPage>;
  detail(log: string, seq: number): Answer<StepDetail>;
  track(log: string, seq: number): Answer<TrackShape>;
  events(log: string, first: number, count: number): Answer<EventsDoc>;
  folder(tree: string, path: string): Answer<FolderShape>;
  file(tree: string, path: string, first?: number, count?: number): Answer<FileShape>;
  diff(left: string, right: string, path?: string): Answer<FilesDiff>;
  blame(place: string, path: string): Answer<BlameShape>;
  prompt(place: string): Answer<PromptDoc>;
  why(place: string, about: string): Answer<TraceDoc>;
  influence(place: string, about: string): Answer<TraceDoc>;
  compare(left: string, right: string): Answer<ComparisonShape>;
  costs(session: string, by: string): Answer<Doc>;
  flame(session: string): Answer<Doc>;
  memory(session: string): Answer<Doc>;
  verify(session: string): Answer<Doc>;
  runs(): Answer<Doc>;
  /** The address of a blob for an image or a download. */
  blobAddress(digest: string): string;
  /** Acts change the store, and are refused by a file. They answer with the new place. */
  act(place: string, verb: string, body: Json): Promise<Doc>;
  post(path: string, body: Json): Promise<Doc>;
  /** Forget what new events of a log have made old. */
  forget(log: string, seq: number): void;
}
