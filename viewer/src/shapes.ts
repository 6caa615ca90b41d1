// Made by tools/viewer_types.py from the structs of the server. Do not edit: run the tool.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export type Status = "open" | "running" | "waiting" | "paused" | "interrupted" | "failed" | "cancelled" | "finished" | "closed" | "archived" | "moved";

export type Relation = "subject" | "decision" | "context" | "order";

export type WaitKind = "approval" | "question" | "unknown" | "timer" | "verdict";

export type StretchEnd = "fork" | "merge" | "tip";

export type StepType = "message" | "reply" | "tool" | "question" | "verdict" | "fact" | "pending" | "route" | "fork" | "merge" | "rewind" | "compaction" | "placement" | "run" | "taken" | "ended" | "wait" | "memory" | "life" | "budget" | "failure" | "bypass" | "note";

export type StepState = "done" | "open" | "waiting" | "failed" | "denied" | "unknown";

export type StepMark = "files" | "passed" | "failed" | "approval" | "kill" | "merge" | "compaction" | "fork" | "rewind" | "memory";

export type RunVerb = "resume" | "whatif" | "run";

export type RunState = "running" | "ended";

/** A place: an event of a log, by its seq. */
export interface SeqRef {
  log: string;
  seq: number;
}

/** The amounts spent, as `plait cost --json` has them. */
export interface SpentShape {
  input_tokens: number;
  output_tokens: number;
  cached_tokens: number;
  reasoning_tokens: number;
  estimated_tokens: number;
  cost_usd: number | null; // None: no price is known
  unpriced: number; // replies without a known price
  model_calls: number;
  tool_calls: number;
}

/** One session in a list for people. */
export interface SessionSummary {
  log: string;
  short: string;
  name: string; // its label, else its title, else its first words, else its short id
  title: string;
  label: string | null;
  status: Status;
  standing: string; // the status for people: `waiting, due` if it has its answer
  is_due: boolean; // it waits, and goes on if it is resumed
  workflow: string;
  user: string | null;
  project: string | null;
  tags: { [key: string]: string };
  parent: SeqRef | null; // None: a root
  is_branch_of_run: boolean; // forked by a run, not by a person
  branch_count: number; // sessions below it
  opened: number;
  updated: number; // of its last event
  tip: number;
  event_count: number; // its own events
  spent: SpentShape; // with its branches
  spent_unmerged: SpentShape; // of that: in branches that are not merged into it
  waiting: number; // asks that wait for a person, gates too, in it and the branches of its run
  queued: number; // turns that wait for a run
  last_text: string; // the last message or reply, at most 200 characters
}

export interface SummaryPage {
  sessions: SessionSummary[];
  next: string | null; // pass it as `before` for the next page; None: this is the last one
  number: number; // the commit number up to which the page is new
}

/** One log of a family. */
export interface BranchShape {
  log: string;
  short: string;
  name: string;
  status: Status;
  standing: string; // the status for people: `waiting, due` if it has its answer
  is_due: boolean; // it waits, and goes on if it is resumed
  parent: SeqRef | null;
  place: number; // the last seq inherited; its own events begin after it
  tip: number;
  color: number; // kept for its life: 0 is the root's, branches count from 1
  step_count: number;
  merged_into: SeqRef[]; // the events that merged it
  spent: SpentShape; // of its own events
}

/** A piece of one log between forks and merges: it is drawn as one line in one lane. */
export interface StretchShape {
  branch: number; // index into `branches`
  lane: number; // column of the picture, 0 is the leftmost
  first: number; // seq of its first and last event
  last: number;
  first_step: number; // indexes of its steps among the steps of the log
  step_count: number;
  parents: number[];
}

/** All sessions connected with one by forks and merges. Stretches stand in the order of their first commits; the rows of a picture are the steps of the stretches, one after another. */
export interface FamilyShape {
  root: string;
  title: string;
  branches: BranchShape[]; // the root first
  spent: SpentShape; // of the root, as its summary has it: with the branches of its runs
  spent_unmerged: SpentShape; // of that: in branches that are not merged into it
  stretches: StretchShape[];
  lane_count: number;
  number: number; // the commit number up to which it is new
}

/** One thing that happened, as a person would tell it: some events of one log, as one line. */
export interface StepShape {
  index: number; // among the steps of its log
  log: string;
  first: number; // seq of its first event
  seq: number; // of its last event so far: the place at which it has happened
  events: number[]; // the seqs of all its events
  type: StepType;
  state: StepState;
  verb: string; // "shell", "edit_file", "merged", "tests"; "": the words alone
  subject: string; // the first argument, a path, a name, a key
  says: string; // the last words of an output, the words of a message, a reason
  actor: string;
  path: string; // of the call: repair/clamp/coder; "": outside of a run
  time: number; // of its first event
  took_us: number | null; // None: it is not settled, or has no duration
  marks: StepMark[];
  files: string[]; // the paths that it changed
  exit_code: number | null;
  tokens: number;
  cost_usd: number | null; // None: not a reply, or no price is known
  is_rewound: boolean; // a later rewind went back behind it
  links: SeqRef[]; // fork: its source; merge: the branches; rewind: the target
}

export interface StepPage {
  log: string;
  first: number; // index of the first step here
  total: number;
  steps: StepShape[];
}

/** The steps of one log, in short, for the strip and for scrubbing: parallel lists, a value per step. Ask again from the first step that is not `done` to bring it up to date. */
export interface OutlineShape {
  log: string;
  from_index: number;
  total: number;
  firsts: number[];
  seqs: number[];
  times_ms: number[]; // since 1970
  types: StepType[];
  states: StepState[];
  marks: { [key: number]: StepMark[] }; // by index, of those that have any
  rewound: ([number, number])[];
  number: number;
}

/** A piece of a message or an output. A long text is cut; `blob` has all of it. */
export interface PartShape {
  type: "data" | "file" | "image" | "reasoning" | "text";
  text: string; // of text, reasoning; JSON of data; the alternative text of an image
  name: string;
  media_type: string;
  blob: string | null;
  size: number; // bytes in all
  is_cut: boolean;
}

/** One word of a person about a call. */
export interface ApprovalShape {
  seq: number;
  how: "corrected" | "denied" | "expired" | "granted" | "requested";
  actor: string;
  time: number;
  words: string;
  edited: Json; // the arguments that were granted instead
}

export interface AttemptShape {
  seq: number;
  number: number;
  state: StepState;
  words: string;
  time: number;
  took_us: number | null;
}

/** A step with everything that its panel shows. */
export interface StepDetail {
  step: StepShape;
  branch: string;
  arguments: Json;
  parts: PartShape[]; // of the message, the reply, or the output
  asked_parts: PartShape[]; // a question
  calls: string[]; // of a reply: the tools that it asks for
  failure: string;
  traceback: string;
  reason: string;
  effect: string; // effect class of a tool
  version: string;
  idempotency_key: string;
  placement: Json;
  placement_text: string;
  model: string;
  usage: SpentShape | null;
  latency_us: number | null;
  attempts: AttemptShape[];
  approvals: ApprovalShape[];
  tree_before: string | null;
  tree_after: string | null;
  kept: PartShape[]; // evidence that no model was shown
  delta: Json; // a change that the tool observed outside of the files
  fields: { [key: string]: Json }; // what else its events say, by name
  ask: string | null; // the open ask of this step: answer it in the inbox
}

export interface FactShape {
  key: string;
  kind: "decision" | "fact" | "finding";
  value: Json;
  at: SeqRef;
}

/** The state of a session at one place, in short. */
export interface TrackState {
  seq: number;
  tree: string | null;
  facts: { [key: string]: FactShape };
  pending: { [key: string]: string }; // key: what
  verdicts: { [key: string]: boolean };
  placement_text: string;
  status: Status; // by its events alone
  spent: SpentShape;
  budget: Json; // limits by name; None: unlimited
  budget_left: Json;
  last_message_seq: number;
}

/** The parts of the state that one event changed. A field that is left out did not change; a fact or pending work that is None is gone. */
export interface TrackChange {
  seq: number;
  tree?: string | null;
  facts?: { [key: string]: FactShape | null };
  pending?: { [key: string]: string | null };
  verdicts?: { [key: string]: boolean | null };
  placement_text?: string;
  status?: Status;
  spent?: SpentShape;
  budget?: Json;
  budget_left?: Json;
  last_message_seq?: number;
}

/** A piece of the track of a log: the state at `start.seq`, and its changes up to `last`. */
export interface TrackShape {
  log: string;
  start: TrackState;
  last: number;
  changes: TrackChange[];
}

export interface EntryShape {
  name: string;
  path: string; // shown: bytes that are no text stand as \xNN
  kind: "file" | "folder" | "link";
  size: number;
  is_executable: boolean;
  target: string;
}

export interface FolderShape {
  tree: string;
  path: string;
  entries: EntryShape[]; // folders first
}

/** A file of a tree. Text comes by lines, so many at a time. */
export interface FileShape {
  tree: string;
  path: string;
  form: "binary" | "image" | "link" | "text";
  size: number;
  media_type: string;
  line_count: number;
  first_line: number;
  lines: string[]; // a very long line is cut, and ends in an ellipsis
  cut_lines: number[]; // numbers of lines that are cut
  blob: string | null;
}

/** An event that wrote lines of a file. */
export interface WriterShape {
  log: string;
  seq: number;
  event: string;
  kind: string;
  tool: string;
  actor: string;
  time: number;
  branch: string;
}

export interface BlameShape {
  path: string;
  writers: WriterShape[];
  lines: number[]; // index into `writers`, for each line of the file
}

export type DiffLine = [mark: " " | "+" | "-", old: number, new: number, text: string];

export interface FileDiff {
  status: "added" | "changed" | "removed" | "renamed";
  path: string;
  old_path: string | null;
  added: number;
  removed: number;
  form: "binary" | "link" | "mode" | "text";
  hunks: DiffLine[][];
  is_cut: boolean; // more lines differ than are shown
}

export interface FilesDiff {
  left: string | null;
  right: string | null;
  files: FileDiff[];
}

/** A row of a comparison: the same call on both sides, or a step of one side. */
export interface AlignedStep {
  left: StepShape | null;
  right: StepShape | null;
  is_same: boolean;
}

export interface ValueSides {
  left: Json;
  right: Json;
}

export interface ComparisonShape {
  left: SeqRef;
  right: SeqRef;
  base: SeqRef | null; // the last place that both have; None: they have none
  common_steps: number; // before the first difference
  rows: AlignedStep[];
  is_cut: boolean;
  files: FilesDiff;
  facts: { [key: string]: ValueSides };
  verdicts: { [key: string]: ValueSides };
  left_spent: SpentShape;
  right_spent: SpentShape;
  left_text: string; // the last words of each
  right_text: string;
}

/** The store that a server serves, and what may be done with it. */
export interface StoreShape {
  id: string;
  address: string; // without a password
  version: string; // of Plait
  actor: string; // who acts, if something is done here
  read_only: boolean;
  can_run: boolean; // False: no runs are started from here
  folder: string; // in which runs are started
  number: number; // the commit number of the last settled event
}

/** An answer that is an error. Some errors have more fields, in `fields`. */
export interface ErrorShape {
  error: string; // its name in the error tree, or that of an HTTP status
  message: string; // ends with the next step
  next: string; // the next step alone, where the error has it
  near: string[]; // names that may be meant
  fields: { [key: string]: Json };
}

/** A session at a place, in short. */
export interface PlaceShape {
  id: string;
  place: number;
}

/** A session at a place, without its content. */
export interface SessionHead {
  id: string;
  short: string;
  place: number;
  head: string;
  title: string;
  label: string | null;
  status: Status;
  standing: string; // the status for people: `waiting, due` if it has its answer
  due: boolean; // it waits, and goes on if it is resumed
  user: string | null;
  project: string | null;
  tags: { [key: string]: string };
  parent: PlaceShape | null;
  updated: number;
  queued: number;
  store: string;
}

/** One run of a session, on record. */
export interface RunRow {
  id: string;
  workflow: string;
  status: string;
  why: string;
  first: number;
  last: number | null;
}

export interface FactRow {
  kind: string;
  value: Json;
  session: string;
  seq: number;
  event: string;
  review_by: number | null;
}

export interface PendingRow {
  kind: string;
  what: string;
  session: string;
  seq: number;
  event: string;
}

export interface GateRow {
  by: string;
  session: string;
  seq: number;
  event: string;
}

export interface VerdictRow {
  name: string;
  passed: boolean;
  detail: Json;
  session: string;
  seq: number;
}

export interface ChangedPaths {
  before: string | null;
  after: string | null;
  paths: string[];
}

/** A turn that waits for a run. */
export interface TurnRow {
  id: string;
  time: number;
  actor: string;
  text: string;
  key: string | null;
  attended: boolean;
}

/** A session at a place, and its state, as `plait show --json` has it; without messages, which are steps, and without the cost of branches, which `costs` tells. */
export interface SessionShape {
  id: string;
  short: string;
  place: number;
  head: string;
  title: string;
  label: string | null;
  status: Status;
  standing: string; // the status for people: `waiting, due` if it has its answer
  due: boolean; // it waits, and goes on if it is resumed
  user: string | null;
  project: string | null;
  tags: { [key: string]: string };
  parent: PlaceShape | null;
  updated: number;
  queued: number;
  store: string;
  opened: number;
  lineage: PlaceShape[];
  continues: PlaceShape | null;
  durability: string;
  runs: RunRow[];
  facts: { [key: string]: FactRow };
  pending: { [key: string]: PendingRow };
  budget: { [key: string]: Json } | null;
  left: { [key: string]: Json } | null;
  usage: SpentShape; // of its own path
  gates: { [key: string]: GateRow };
  validation: VerdictRow[];
  placement: { [key: string]: Json } | null;
  tree: string | null;
  changed: ChangedPaths | null;
  queue: TurnRow[];
  is_tip: boolean; // False: the session has events after this place
  tip: number;
}

/** One event, as `plait log --json` has it. */
export interface EventShape {
  id: string;
  session: string;
  seq: number;
  kind: string;
  time: number;
  actor: string;
  behalf: string | null;
  origin: string | null;
  run: string | null;
  call: string | null;
  parents: string[];
  causes: string[];
  body: Json; // None: see `state`
  state: "erased" | "unreadable" | "whole";
  why: string; // of a body that is erased or unreadable
}

export interface EventPage {
  log: string;
  first: number; // seq of the first event here
  tip: number;
  events: EventShape[];
}

export interface OutlineList {
  outlines: OutlineShape[];
}

/** A message or a reply in which all words of a search stand. */
export interface SearchHit {
  log: string;
  seq: number;
  kind: string;
  name: string; // of the session
  actor: string;
  time: number;
  snippet: string;
}

export interface SearchPage {
  hits: SearchHit[];
  is_cut: boolean; // there are more, or not all of the store was searched
}

/** A memory that was recalled before an ask, and does not hold any more. */
export interface LapsedMemory {
  id: string;
  text: string;
  change: string;
}

/** One ask, with everything that a person decides by. */
export interface AskShape {
  id: string;
  kind: WaitKind;
  session: string;
  short: string;
  name: string; // of the session
  seq: number;
  since: number;
  actor: string;
  behalf: string | null;
  run: string | null;
  call: string;
  resume: string; // the session to resume after the answer
  tool: string | null;
  version: string | null;
  arguments: Json;
  request: string | null;
  request_seq: number | null; // of the call that asks; None: not a call
  effect: string; // effect class of the tool; "": not known
  reason: string; // why the agent wants it, in its words
  binding: string | null;
  shown: Json;
  patch: string; // the change of files that it would make, as a patch; "": none is known
  expires: number | null;
  is_late: boolean;
  question: string;
  choices: string[];
  why: string;
  until: number | null;
  signal: string; // of a timer: the signal that ends it; of a verdict: its name
  by: string;
  of: string | null;
  returns: Json;
  origins: string[]; // what the asking session had read, as in "web"
  lapsed_memories: LapsedMemory[];
  failed: EventShape | null; // of a verdict: one was given that failed
  answered: EventShape | null; // the answer in an inbox that no run has taken yet; None: it waits
}

export interface InboxPage {
  asks: AskShape[];
  number: number;
}

export interface ToolSpecShape {
  name: string;
  description: string;
  schema: Json;
}

/** An event that a prompt did not show, and the reason. */
export interface LeftOutRow {
  session: string;
  place: number;
  kind: string;
  why: string;
}

/** A prompt as it was sent. */
export interface PromptShape {
  session: string;
  place: number;
  event: string;
  agent: string;
  model: string;
  as_sent: boolean; // False: the digest differs from the one on record
  digest: string;
  recorded: string;
  instruction: string;
  tools: ToolSpecShape[];
  parameters: Json;
  output: Json;
  view: Json;
  turns: Json[];
  left_out: LeftOutRow[];
  new_from: number; // index of the first turn that the agent's prompt before did not have
}

/** One event of a trace, and its relation to the one it is shown under. */
export interface TraceStep {
  depth: number;
  how: string;
  id: string;
  session: string;
  seq: number;
  kind: string;
  branch: string;
  actor: string;
  time: number;
  says: string;
  relation: Relation;
  reason: string;
  placement: string;
  files: string[];
  at: SeqRef | null; // where to look: of an event in an inbox, at the session's. None: nowhere
}

export interface TraceShape {
  about: string;
  complete: boolean;
  steps: TraceStep[];
}

export interface CostRow {
  names: { [key: string]: string | null }; // by the names in `by`
  spent: SpentShape;
}

export interface CostsShape {
  by: string[];
  since: number | null;
  until: number | null;
  rows: CostRow[];
  total: SpentShape;
  not_merged: SpentShape | null;
}

/** One call of a run, a workflow, an agent, a model or a tool. Its figures include all below. */
export interface FlameNode {
  name: string;
  kind: "call" | "model" | "run" | "session" | "tool";
  log: string;
  seq: number; // of its first event
  depth: number;
  parent: number; // index of the node above; -1: none
  began: number;
  took_us: number | null; // None: it has not ended
  spent: SpentShape;
}

export interface FlameShape {
  nodes: FlameNode[]; // each after the one above it
  is_cut: boolean;
}

export interface RecalledMemory {
  memory: string;
  text: string;
  score: number | null; // None: the index gave none
  state: string; // as it stands now
  used: SeqRef[]; // the events that cite it
}

/** One recall of an agent: what was asked for, and what it was given. */
export interface RecallRow {
  log: string;
  seq: number;
  actor: string;
  time: number;
  query: string;
  memories: RecalledMemory[];
}

/** A memory that the session proposed, decided about or used. */
export interface MemoryRow {
  memory: string;
  log: string;
  seq: number;
  kind: string;
  actor: string;
  time: number;
  text: string;
  state: string;
  why: string;
}

export interface MemoryPage {
  recalls: RecallRow[];
  proposed: MemoryRow[];
  decided: MemoryRow[];
}

export interface FaultRow {
  session: string | null;
  seq: number | null;
  what: string;
}

export interface UncheckedRow {
  what: string;
  why: string;
}

export interface VerifyShape {
  session: string;
  seq: number;
  ok: boolean;
  events: number;
  faults: FaultRow[]; // the first broken event first
  unchecked: UncheckedRow[];
}

/** An effect beyond the files that a rewind leaves as it is. */
export interface NotUndoneRow {
  session: string;
  seq: number;
  event: string;
  tool: string | null;
  arguments: Json;
  says: string;
}

/** The place after an act. */
export interface ActShape {
  log: string;
  seq: number;
  head: string;
  short: string;
  status: Status;
  is_new: boolean; // False: nothing had to be written
  posted: EventShape | null; // the event in the inbox; None: the act stands in the log
  resume: string; // the session to resume, if a run waits for this; "": none
  not_undone: NotUndoneRow[];
  still_waits: string; // of a verdict: why a gate waits on; "": none does
}

export interface HelloShape {
  actor: string;
  read_only: boolean;
}

/** A run that this server started: a process of its own. */
export interface RunShape {
  id: string;
  verb: RunVerb;
  session: string;
  branch: string | null; // of a what-if: its branch, once it is there
  command: string; // as it would be typed
  state: RunState;
  pid: number;
  began: number;
  ended: number | null;
  exit_code: number | null; // None: it has not ended, or nobody saw its end
  status: string; // of its end: finished, waiting, failed, cancelled, interrupted; "": not known
  error: ErrorShape | null;
  text: string; // its last words, or the end of its error output
}

export interface RunList {
  runs: RunShape[]; // those that run, then those that ended last
  locked: SeqRef[]; // sessions whose runs another process has
}

/** One event of the store, in short. */
export type NewsRow = [number: number, log: string, seq: number, kind: string, session: string | null];

/** Events `news` of the feed: settled events in the order of their numbers. */
export interface NewsShape {
  rows: NewsRow[];
}

/** Events `reset` of the feed: the store ends before what the listener has heard, as after a restore from a backup. Everything is to be read again, and the feed goes on from this number. */
export interface ResetShape {
  number: number;
}

/** Events `delta` of the feed: text that a model writes in a run of this server. It is not on record; the settled reply is. */
export interface DeltaShape {
  run: string;
  log: string | null;
  path: string; // of the agent
  type: "arguments" | "output" | "restart" | "text" | "thought" | "tool" | "wait";
  text: string;
}

/** Events `waiting` of the feed: how many asks wait for people. */
export interface WaitingShape {
  count: number;
  number: number;
}

export interface SessionsParams {
  q?: string; // a filter: words, and `status:waiting user:u-17 cost:>1 tag:team=web is:root`
  before?: string; // `next` of the page before
  limit?: number;
}

export interface SearchParams {
  q: string;
  limit?: number;
}

export interface InboxParams {
  session?: string; // "": of all sessions
  all?: boolean; // also timers, and asks that are answered
}

export interface SessionParams {
  session: string; // an id, the start of it, a label or `@`; `S@k` is its value at event k
}

export interface LogParams {
  log: string;
}

export interface OutlineParams {
  log: string;
  from?: number; // index of the first step that is wanted
}

export interface OutlinesParams {
  logs: string; // ids, with commas
}

export interface StepsParams {
  log: string;
  first?: number;
  count?: number;
}

export interface StepParams {
  log: string;
  seq: number;
}

export interface TrackParams {
  log: string;
  seq: number;
  after?: number; // the piece is known up to here: only what comes then is wanted
}

export interface EventsParams {
  log: string;
  first?: number;
  count?: number;
}

export interface FolderParams {
  tree: string;
  folder?: string; // "": the top
}

export interface FileParams {
  tree: string;
  path: string;
  first?: number; // line
  count?: number;
}

export interface DiffParams {
  left: string; // `none` is the empty tree
  right: string;
  path?: string; // "": all paths
}

export interface BlameParams {
  session: string;
  path: string;
}

export interface AboutParams {
  session: string;
  about?: string;
  limit?: number;
}

export interface CompareParams {
  left: string;
  right: string;
}

export interface CostsParams {
  session?: string; // "": all sessions
  by?: string; // user, project, tag:NAME, agent, model, session, run, day; with commas
  since?: string;
  until?: string;
}

export interface BlobParams {
  digest: string;
  name?: string; // of the file, if it is saved
}

export interface RunParams {
  run: string;
}

export interface FeedParams {
  after?: number | null; // a commit number; None: from now on
}

/** Hands over the token of a start, and is given a cookie for it. */
export interface HelloBody {
  token: string;
}

/** Says something: `send` through the inbox, `say` in the log if no run is open. */
export interface SayBody {
  text: string;
}

export interface SignalBody {
  name: string;
  value?: Json;
}

export interface ApproveBody {
  ask: string;
  edited?: Json; // all arguments, if they are other ones
  note?: string;
}

export interface DenyBody {
  ask: string;
  reason?: string;
}

export interface AnswerBody {
  ask: string;
  value: Json;
}

export interface ResolveBody {
  ask: string;
  verdict: "compensated" | "did_not_happen" | "happened";
  value?: Json;
  note?: string;
}

/** Of `pause`, `unpause`, `cancel` and `close`. */
export interface ReasonBody {
  reason?: string;
}

export interface ForkBody {
  label?: string | null;
}

/** Goes back to the place of the session that is named in the path. */
export interface RewindBody {
  reason?: string;
}

/** A choice between the sides of a conflict. */
export interface SideChoice {
  side?: string | null; // the name of a side, as the conflict has it
  value?: Json; // of a fact: another value; of a file: its text
  drop?: boolean; // it is gone
}

export interface MergeBody {
  others: string[];
  choices?: { [key: string]: SideChoice }; // by key or path, as the conflict names them
  base?: string;
}

export interface NoteBody {
  text: string;
  key?: string | null;
}

export interface ValidateBody {
  name: string;
  passed: boolean;
  detail?: Json;
}

/** Starts a process that resumes a session, runs it again with something changed, or runs a program in it. */
export interface NewRun {
  verb: RunVerb;
  session: string; // of a what-if with `@k`, from where it is live
  program?: string; // FILE.py:NAME or module:NAME; "": as the last run of the session says
  accept?: string; // of a resume: why a changed program may go on; "": it may not
  model?: string | null;
  instruction?: string | null;
  replace?: { [key: string]: Json }; // by seq: other words for a message, a reply, a result, a fact
  tools?: { [key: string]: string[] };
  effects?: "ask" | "live";
  label?: string | null;
}

/** Interrupts the process of a run, as Ctrl-C does. */
export type StopRun = Record<string, never>;

/** The routes of the server, by name: parameters of path and query, body, answer. */
export interface Routes {
  store: { params: null; body: null; answer: StoreShape };
  sessions: { params: SessionsParams; body: null; answer: SummaryPage };
  search: { params: SearchParams; body: null; answer: SearchPage };
  inbox: { params: InboxParams; body: null; answer: InboxPage };
  costs: { params: CostsParams; body: null; answer: CostsShape };
  folder: { params: FolderParams; body: null; answer: FolderShape };
  file: { params: FileParams; body: null; answer: FileShape };
  diff: { params: DiffParams; body: null; answer: FilesDiff };
  blob: { params: BlobParams; body: null; answer: null };
  outline: { params: OutlineParams; body: null; answer: OutlineShape };
  outlines: { params: OutlinesParams; body: null; answer: OutlineList };
  steps: { params: StepsParams; body: null; answer: StepPage };
  step: { params: StepParams; body: null; answer: StepDetail };
  track: { params: TrackParams; body: null; answer: TrackShape };
  events: { params: EventsParams; body: null; answer: EventPage };
  compare: { params: CompareParams; body: null; answer: ComparisonShape };
  family: { params: SessionParams; body: null; answer: FamilyShape };
  blame: { params: BlameParams; body: null; answer: BlameShape };
  prompt: { params: SessionParams; body: null; answer: PromptShape };
  why: { params: AboutParams; body: null; answer: TraceShape };
  influence: { params: AboutParams; body: null; answer: TraceShape };
  flame: { params: SessionParams; body: null; answer: FlameShape };
  memory: { params: SessionParams; body: null; answer: MemoryPage };
  verify: { params: SessionParams; body: null; answer: VerifyShape };
  session: { params: SessionParams; body: null; answer: SessionShape };
  send: { params: SessionParams; body: SayBody; answer: ActShape };
  say: { params: SessionParams; body: SayBody; answer: ActShape };
  signal: { params: SessionParams; body: SignalBody; answer: ActShape };
  note: { params: SessionParams; body: NoteBody; answer: ActShape };
  approve: { params: SessionParams; body: ApproveBody; answer: ActShape };
  deny: { params: SessionParams; body: DenyBody; answer: ActShape };
  answer: { params: SessionParams; body: AnswerBody; answer: ActShape };
  resolve: { params: SessionParams; body: ResolveBody; answer: ActShape };
  pause: { params: SessionParams; body: ReasonBody; answer: ActShape };
  unpause: { params: SessionParams; body: ReasonBody; answer: ActShape };
  cancel: { params: SessionParams; body: ReasonBody; answer: ActShape };
  close: { params: SessionParams; body: ReasonBody; answer: ActShape };
  validate: { params: SessionParams; body: ValidateBody; answer: ActShape };
  fork: { params: SessionParams; body: ForkBody; answer: ActShape };
  rewind: { params: SessionParams; body: RewindBody; answer: ActShape };
  merge: { params: SessionParams; body: MergeBody; answer: ActShape };
  runs: { params: null; body: null; answer: RunList };
  start_run: { params: null; body: NewRun; answer: RunShape };
  stop_run: { params: RunParams; body: StopRun; answer: RunShape };
}

export const ROUTES: { readonly [name in keyof Routes]: { method: string; path: string } } = {
  store: { method: "GET", path: "/api/store" },
  sessions: { method: "GET", path: "/api/sessions" },
  search: { method: "GET", path: "/api/search" },
  inbox: { method: "GET", path: "/api/inbox" },
  costs: { method: "GET", path: "/api/costs" },
  folder: { method: "GET", path: "/api/trees/{tree}" },
  file: { method: "GET", path: "/api/trees/{tree}/file" },
  diff: { method: "GET", path: "/api/trees/{left}/diff/{right}" },
  blob: { method: "GET", path: "/api/blobs/{digest}" },
  outline: { method: "GET", path: "/api/logs/{log}/outline" },
  outlines: { method: "GET", path: "/api/outlines" },
  steps: { method: "GET", path: "/api/logs/{log}/steps" },
  step: { method: "GET", path: "/api/logs/{log}/steps/{seq}" },
  track: { method: "GET", path: "/api/logs/{log}/track" },
  events: { method: "GET", path: "/api/logs/{log}/events" },
  compare: { method: "GET", path: "/api/sessions/{left}/compare/{right}" },
  family: { method: "GET", path: "/api/sessions/{session}/family" },
  blame: { method: "GET", path: "/api/sessions/{session}/blame" },
  prompt: { method: "GET", path: "/api/sessions/{session}/prompt" },
  why: { method: "GET", path: "/api/sessions/{session}/why" },
  influence: { method: "GET", path: "/api/sessions/{session}/influence" },
  flame: { method: "GET", path: "/api/sessions/{session}/flame" },
  memory: { method: "GET", path: "/api/sessions/{session}/memory" },
  verify: { method: "GET", path: "/api/sessions/{session}/verify" },
  session: { method: "GET", path: "/api/sessions/{session}" },
  send: { method: "POST", path: "/api/sessions/{session}/acts/send" },
  say: { method: "POST", path: "/api/sessions/{session}/acts/say" },
  signal: { method: "POST", path: "/api/sessions/{session}/acts/signal" },
  note: { method: "POST", path: "/api/sessions/{session}/acts/note" },
  approve: { method: "POST", path: "/api/sessions/{session}/acts/approve" },
  deny: { method: "POST", path: "/api/sessions/{session}/acts/deny" },
  answer: { method: "POST", path: "/api/sessions/{session}/acts/answer" },
  resolve: { method: "POST", path: "/api/sessions/{session}/acts/resolve" },
  pause: { method: "POST", path: "/api/sessions/{session}/acts/pause" },
  unpause: { method: "POST", path: "/api/sessions/{session}/acts/unpause" },
  cancel: { method: "POST", path: "/api/sessions/{session}/acts/cancel" },
  close: { method: "POST", path: "/api/sessions/{session}/acts/close" },
  validate: { method: "POST", path: "/api/sessions/{session}/acts/validate" },
  fork: { method: "POST", path: "/api/sessions/{session}/acts/fork" },
  rewind: { method: "POST", path: "/api/sessions/{session}/acts/rewind" },
  merge: { method: "POST", path: "/api/sessions/{session}/acts/merge" },
  runs: { method: "GET", path: "/api/runs" },
  start_run: { method: "POST", path: "/api/runs" },
  stop_run: { method: "POST", path: "/api/runs/{run}/stop" },
};
