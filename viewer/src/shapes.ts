/** The shapes that the server answers with. Times are microseconds since 1970 (UTC). */

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

export type Status = "open" | "running" | "waiting" | "paused" | "interrupted" | "failed" | "cancelled" | "finished" | "closed" | "archived" | "moved";

export interface SeqRef {
  readonly log: string;
  readonly seq: number;
}

export interface SpentShape {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cached_tokens: number;
  readonly reasoning_tokens: number;
  readonly estimated_tokens: number;
  readonly cost_usd: number | null;
  readonly unpriced: number;
  readonly model_calls: number;
  readonly tool_calls: number;
}

export interface SessionSummary {
  readonly log: string;
  readonly short: string;
  readonly name: string;
  readonly title: string;
  readonly label: string | null;
  readonly status: Status;
  readonly workflow: string;
  readonly user: string | null;
  readonly project: string | null;
  readonly tags: { readonly [key: string]: string };
  readonly parent: SeqRef | null;
  readonly is_branch_of_run: boolean;
  readonly branch_count: number;
  readonly opened: number;
  readonly updated: number;
  readonly tip: number;
  readonly event_count: number;
  readonly spent: SpentShape;
  readonly spent_unmerged: SpentShape;
  readonly waiting: number;
  readonly queued: number;
  readonly last_text: string;
}

export interface SummaryPage {
  readonly sessions: readonly SessionSummary[];
  readonly next: string | null;
  readonly number: number;
}

export type StretchEnd = "fork" | "merge" | "tip";

export interface BranchShape {
  readonly log: string;
  readonly short: string;
  readonly name: string;
  readonly status: Status;
  readonly parent: SeqRef | null;
  readonly place: number;
  readonly tip: number;
  readonly color: number;
  readonly step_count: number;
  readonly merged_into: readonly SeqRef[];
  readonly spent: SpentShape;
}

export interface StretchShape {
  readonly branch: number;
  readonly lane: number;
  readonly first: number;
  readonly last: number;
  readonly first_step: number;
  readonly step_count: number;
  readonly parents: readonly number[];
}

export interface FamilyShape {
  readonly root: string;
  readonly title: string;
  readonly branches: readonly BranchShape[];
  readonly stretches: readonly StretchShape[];
  readonly lane_count: number;
  readonly number: number;
}

export type StepType = "message" | "reply" | "tool" | "question" | "verdict" | "fact" | "pending" | "route" | "fork" | "merge" | "rewind" | "compaction" | "placement" | "run" | "taken" | "ended" | "wait" | "memory" | "life" | "budget" | "failure" | "bypass" | "note";

export type StepState = "done" | "open" | "waiting" | "failed" | "denied" | "unknown";

export type StepMark = "files" | "passed" | "failed" | "approval" | "kill" | "merge" | "compaction" | "fork" | "rewind" | "memory";

export interface StepShape {
  readonly index: number;
  readonly log: string;
  readonly first: number;
  readonly seq: number;
  readonly events: readonly number[];
  readonly type: StepType;
  readonly state: StepState;
  readonly verb: string;
  readonly subject: string;
  readonly says: string;
  readonly actor: string;
  readonly path: string;
  readonly time: number;
  readonly took_us: number | null;
  readonly marks: readonly StepMark[];
  readonly files: readonly string[];
  readonly exit_code: number | null;
  readonly tokens: number;
  readonly cost_usd: number | null;
  readonly is_rewound: boolean;
  readonly links: readonly SeqRef[];
}

export interface StepPage {
  readonly log: string;
  readonly first: number;
  readonly total: number;
  readonly steps: readonly StepShape[];
}

export interface OutlineShape {
  readonly log: string;
  readonly from_index: number;
  readonly total: number;
  readonly firsts: readonly number[];
  readonly seqs: readonly number[];
  readonly times_ms: readonly number[];
  readonly types: readonly StepType[];
  readonly states: readonly StepState[];
  readonly marks: { readonly [key: number]: readonly StepMark[] };
  readonly number: number;
}

export interface PartShape {
  readonly type: "text" | "reasoning" | "image" | "file" | "data";
  readonly text: string;
  readonly name: string;
  readonly media_type: string;
  readonly blob: string | null;
  readonly size: number;
  readonly is_cut: boolean;
}

export interface ApprovalShape {
  readonly seq: number;
  readonly how: "requested" | "granted" | "corrected" | "denied" | "expired";
  readonly actor: string;
  readonly time: number;
  readonly words: string;
  readonly edited: Json;
}

export interface AttemptShape {
  readonly seq: number;
  readonly number: number;
  readonly state: StepState;
  readonly words: string;
  readonly time: number;
  readonly took_us: number | null;
}

export interface StepDetail {
  readonly step: StepShape;
  readonly branch: string;
  readonly arguments: Json;
  readonly parts: readonly PartShape[];
  readonly asked_parts: readonly PartShape[];
  readonly calls: readonly string[];
  readonly failure: string;
  readonly traceback: string;
  readonly reason: string;
  readonly effect: string;
  readonly version: string;
  readonly idempotency_key: string;
  readonly placement: Json;
  readonly placement_text: string;
  readonly model: string;
  readonly usage: SpentShape | null;
  readonly latency_us: number | null;
  readonly attempts: readonly AttemptShape[];
  readonly approvals: readonly ApprovalShape[];
  readonly tree_before: string | null;
  readonly tree_after: string | null;
  readonly kept: readonly PartShape[];
  readonly delta: Json;
  readonly fields: { readonly [key: string]: Json };
  readonly ask: string | null;
}

export interface FactShape {
  readonly key: string;
  readonly kind: "fact" | "decision" | "finding";
  readonly value: Json;
  readonly at: SeqRef;
}

export interface TrackState {
  readonly seq: number;
  readonly tree: string | null;
  readonly facts: { readonly [key: string]: FactShape };
  readonly pending: { readonly [key: string]: string };
  readonly verdicts: { readonly [key: string]: boolean };
  readonly placement_text: string;
  readonly status: Status;
  readonly spent: SpentShape;
  readonly budget: Json;
  readonly budget_left: Json;
  readonly last_message_seq: number;
}

export interface TrackChange {
  readonly seq: number;
  readonly tree?: string | null;
  readonly facts?: { readonly [key: string]: FactShape | null };
  readonly pending?: { readonly [key: string]: string | null };
  readonly verdicts?: { readonly [key: string]: boolean | null };
  readonly placement_text?: string;
  readonly status?: Status;
  readonly spent?: SpentShape;
  readonly budget?: Json;
  readonly budget_left?: Json;
  readonly last_message_seq?: number;
}

export interface TrackShape {
  readonly log: string;
  readonly start: TrackState;
  readonly last: number;
  readonly changes: readonly TrackChange[];
}

export interface EntryShape {
  readonly name: string;
  readonly path: string;
  readonly kind: "file" | "folder" | "link";
  readonly size: number;
  readonly is_executable: boolean;
  readonly target: string;
}

export interface FolderShape {
  readonly tree: string;
  readonly path: string;
  readonly entries: readonly EntryShape[];
}

export interface FileShape {
  readonly tree: string;
  readonly path: string;
  readonly form: "text" | "image" | "binary" | "link";
  readonly size: number;
  readonly media_type: string;
  readonly line_count: number;
  readonly first_line: number;
  readonly lines: readonly string[];
  readonly cut_lines: readonly number[];
  readonly blob: string | null;
}

export interface WriterShape {
  readonly log: string;
  readonly seq: number;
  readonly event: string;
  readonly kind: string;
  readonly tool: string;
  readonly actor: string;
  readonly time: number;
  readonly branch: string;
}

export interface BlameShape {
  readonly path: string;
  readonly writers: readonly WriterShape[];
  readonly lines: readonly number[];
}

export type DiffLine = readonly [mark: "+" | "-" | " ", old: number, new: number, text: string];

export interface FileDiff {
  readonly status: "added" | "removed" | "changed" | "renamed";
  readonly path: string;
  readonly old_path: string | null;
  readonly added: number;
  readonly removed: number;
  readonly form: "text" | "binary" | "link" | "mode";
  readonly hunks: readonly (readonly DiffLine[])[];
  readonly is_cut: boolean;
}

export interface FilesDiff {
  readonly left: string | null;
  readonly right: string | null;
  readonly files: readonly FileDiff[];
}

export interface AlignedStep {
  readonly left: StepShape | null;
  readonly right: StepShape | null;
  readonly is_same: boolean;
}

export interface ValueSides {
  readonly left: Json;
  readonly right: Json;
}

export interface ComparisonShape {
  readonly left: SeqRef;
  readonly right: SeqRef;
  readonly base: SeqRef | null;
  readonly common_steps: number;
  readonly rows: readonly AlignedStep[];
  readonly is_cut: boolean;
  readonly files: FilesDiff;
  readonly facts: { readonly [key: string]: ValueSides };
  readonly verdicts: { readonly [key: string]: ValueSides };
  readonly left_spent: SpentShape;
  readonly right_spent: SpentShape;
  readonly left_text: string;
  readonly right_text: string;
}
