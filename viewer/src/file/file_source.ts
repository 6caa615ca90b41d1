/** The source of a page in one file: the answers of a server, from the pieces of data in the page. */

import { Answer, AnswerCache, Failure } from "../base/answer";
import type {
  BlameShape,
  BranchShape,
  ComparisonShape,
  CostsShape,
  EventPage,
  EventShape,
  FamilyShape,
  FlameShape,
  InboxPage,
  Json,
  MemoryPage,
  OutlineShape,
  PartShape,
  PromptShape,
  SearchHit,
  SessionShape,
  SessionSummary,
  SpentShape,
  StepDetail,
  StepShape,
  StoreShape,
  TraceShape,
  TrackChange,
  TrackShape,
  VerifyShape,
} from "../shapes";
import type { Copy, Source } from "../source";
import { FileBlame, type Version } from "./file_blame";
import { FileTrees } from "./file_trees";
import type { Pieces } from "./pieces";
import { FORWARD, walk, type EventLine, type Lines, type Link } from "./walk";

const STEPS = 500;
const EVENTS = 2000;
const TRACK = 2000;
const TRACE_MAX = 200;
const HITS_MAX = 50;

interface Head {
  readonly format: number;
  readonly version: string;
  readonly made: number;
  readonly place: readonly [log: string, seq: number];
  readonly other: readonly [log: string, seq: number] | null;
  readonly tip: number;
  readonly head: string;
  readonly left_out: readonly string[];
  readonly store: StoreShape;
  readonly family: FamilyShape;
  readonly sessions: readonly SessionShape[];
  readonly inbox: InboxPage;
  readonly verify: VerifyShape;
  readonly memory: MemoryPage;
  readonly flame: FlameShape;
  readonly costs: Readonly<Record<string, CostsShape>>;
}

/** Events of other logs that causes lead to: of inboxes, and of sessions that remembered. */
interface Foreign {
  readonly logs: readonly (readonly [id: string, name: string])[];
  readonly lines: Readonly<Record<string, EventLine>>;
}

/** The records of events in a row, and their lines: what the record of an event has is not repeated. */
type EventPiece = { readonly first: number; readonly events: readonly Partial<EventShape>[] };
type LinkPiece = { readonly first: number; readonly lines: readonly ShortLine[] };
type ShortLine = EventLine extends readonly [string, string, number, ...infer Rest] ? Rest : never;
/** A track whose changes tell by how much more was spent: the differences by field, or all of it. */
type TrackRow = Omit<TrackShape, "changes"> & {
  readonly changes: readonly (Omit<TrackChange, "spent"> & { readonly spent?: readonly number[] | SpentShape })[];
};

/** A step without the values that say nothing. */
type StepRow = Partial<Omit<StepDetail, "step">> & { readonly step: Partial<StepShape> };
type StepRefs = readonly [left: readonly [number, number] | null, right: readonly [number, number] | null, isSame: boolean];
/** A comparison whose steps are named by their log and index. */
type ComparisonRow = Omit<ComparisonShape, "rows"> & { readonly rows: readonly StepRefs[] };
type PromptRow = readonly [log: string, seq: number, shared: number, rest: Partial<PromptShape>];

function absent(what: string, next: string): Failure {
  return new Failure("NotInFile", `This file has no ${what}.`, next, 404);
}

const refusal = () =>
  new Failure("FileIsACopy", "This file is a copy, and nothing can be done in it.", "Open the session itself: plait view S", 403);

export class FileSource implements Source, Lines {
  readonly isFile = true;
  readonly copy: Copy;
  #cache = new AnswerCache();
  #addresses = new Map<string, string>();
  #trees: FileTrees;
  #timed = new WeakMap<EventPiece, EventPiece>();
  #links: Promise<Map<string, Link[]>> | null = null;

  constructor(
    readonly pieces: Pieces,
    readonly head: Head,
    images: Readonly<Record<string, { media_type: string; data: string }>>,
    readonly foreign: Foreign,
  ) {
    const [log, seq] = head.place;
    this.copy = {
      log,
      seq,
      other: head.other ? { log: head.other[0], seq: head.other[1] } : null,
      made: head.made,
      tip: head.tip,
      head: head.head,
      leftOut: head.left_out,
    };
    this.#trees = new FileTrees(pieces);
    for (const [digest, image] of Object.entries(images))
      this.#addresses.set(digest, `data:${image.media_type};base64,${image.data}`);
  }

  static async open(pieces: Pieces): Promise<FileSource> {
    const [head, images, foreign] = await Promise.all([
      pieces.get<Head>("head/0"),
      pieces.get<{}>("images/0"),
      pieces.get<Foreign>("foreign/0"),
    ]);
    if (!head) throw absent("head", "Write it again: plait view S -o FILE");
    return new FileSource(pieces, head, images ?? {}, foreign ?? { logs: [], lines: {} });
  }

  // ── names ──────────────────────────────────────────────────────────────────────────────────

  #branch(name: string): BranchShape {
    const branches = this.head.family.branches;
    const found =
      name === "@" || name === ""
        ? branches.find((each) => each.log === this.copy.log)
        : branches.find((each) => [each.log, each.short, each.name].includes(name));
    if (!found) throw absent(`session ${name}`, "It has the sessions that hang together with the first one.");
    return found;
  }

  #place(place: string): { branch: BranchShape; seq: number } {
    const found = /^(.+)@(\d{1,15})$/.exec(place);
    const branch = this.#branch(found ? found[1]! : place);
    return { branch, seq: found ? Number(found[2]) : branch.tip };
  }

  #index(log: string): number {
    return this.head.family.branches.findIndex((each) => each.log === log);
  }

  /** Return the branch whose own event stands at a place of a lineage. */
  #owner(branch: BranchShape, seq: number): BranchShape {
    let here = branch;
    while (seq <= here.place && here.parent) here = this.#branch(here.parent.log);
    return here;
  }

  #get<T>(key: string, load: () => Promise<T> | T): Answer<T> {
    return this.#cache.get<T>(key, async () => load());
  }

  // ── the store and its sessions ─────────────────────────────────────────────────────────────

  store: Source["store"] = () =>
    this.#get("store", () => ({ ...this.head.store, read_only: true, can_run: false }));

  sessions: Source["sessions"] = (filter) =>
    this.#get(`sessions ${filter}`, () => {
      const words = filter.toLowerCase().split(/\s+/).filter((word) => word && !word.includes(":"));
      const { branches, spent, spent_unmerged } = this.head.family;
      const rows = branches.map((branch, at) => ({ ...summary(branch, this.head.sessions[at]!), ...(at === 0 ? { spent, spent_unmerged } : {}) }));
      const found = rows.filter((row) => words.every((word) => `${row.name} ${row.title}`.toLowerCase().includes(word)));
      return { sessions: found.sort((a, b) => b.updated - a.updated), next: null, number: 0 };
    });

  search: Source["search"] = (words) =>
    this.#get(`search ${words}`, async () => {
      const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
      const hits: SearchHit[] = [];
      for (const { log, step_count } of wanted.length ? this.head.family.branches : [])
        for (const { step, parts, branch } of await this.#details(log, 0, step_count)) {
          if (!["message", "reply"].includes(step.type)) continue;
          const text = parts.map((part) => part.text).join(" ");
          if (!wanted.every((word) => text.toLowerCase().includes(word))) continue;
          const at = Math.max(0, text.toLowerCase().indexOf(wanted[0]!) - 50);
          const snippet = text.slice(at, at + 160).replace(/\s+/g, " ");
          hits.push({ log: step.log, seq: step.seq, kind: step.type, name: branch, actor: step.actor, time: step.time, snippet });
        }
      return { hits: hits.slice(0, HITS_MAX), is_cut: hits.length > HITS_MAX };
    });

  inbox: Source["inbox"] = () => this.#get("inbox", () => this.head.inbox);
  family: Source["family"] = () => this.#get("family", () => this.head.family);
  flame: Source["flame"] = () => this.#get("flame", () => this.head.flame);
  memory: Source["memory"] = () => this.#get("memory", () => this.head.memory);
  verify: Source["verify"] = () => this.#get("verify", () => this.head.verify);
  runs: Source["runs"] = () => this.#get("runs", () => ({ runs: [], locked: [] }));

  session: Source["session"] = (place) =>
    this.#get(`session ${place}`, () => {
      const { branch, seq } = this.#place(place);
      const known = this.head.sessions[this.#index(branch.log)]!;
      return { ...known, place: seq, is_tip: seq === branch.tip };
    });

  costs: Source["costs"] = (_, by) =>
    this.#get(`costs ${by}`, () => {
      const found = this.head.costs[by];
      if (!found) throw absent(`costs by ${by}`, `Ask the store: plait cost S --by ${by}`);
      return found;
    });

  // ── steps, tracks, events ──────────────────────────────────────────────────────────────────

  async #outlines(): Promise<OutlineShape[]> {
    return (await this.pieces.get<OutlineShape[]>("outlines/0")) ?? [];
  }

  outlines: Source["outlines"] = (logs) =>
    this.#get(`outlines ${logs.join()}`, async () => {
      const known = await this.#outlines();
      return { outlines: known.filter((each) => logs.includes(each.log)) };
    });

  outline: Source["outline"] = (log) =>
    this.#get(`outline ${log}`, async () => {
      const found = (await this.#outlines()).find((each) => each.log === log);
      if (!found) throw absent(`outline of ${log}`, "");
      return found;
    });

  async #details(log: string, first: number, count: number): Promise<StepDetail[]> {
    const at = this.#index(log);
    const found: StepDetail[] = [];
    for (let piece = Math.floor(first / STEPS); piece * STEPS < first + count; piece += 1) {
      const all = await this.pieces.get<StepRow[]>(`steps/${at}/${piece}`);
      if (!all) break;
      const from = Math.max(0, first - piece * STEPS);
      const wanted = all.slice(from, first + count - piece * STEPS);
      found.push(...wanted.map((row, index) => wholeStep(row, log, piece * STEPS + from + index)));
    }
    return found;
  }

  steps: Source["steps"] = (log, first, count) =>
    this.#get(`steps ${log} ${first} ${count}`, async () => {
      const details = await this.#details(log, first, count);
      return { log, first, total: this.#branch(log).step_count, steps: details.map((each) => each.step) };
    });

  detail: Source["detail"] = (log, seq) =>
    this.#get(`detail ${log} ${seq}`, async () => {
      const owner = this.#owner(this.#branch(log), seq);
      const outline = await this.outline(owner.log, 0).get();
      let at = outline.firsts.findLastIndex((first) => first <= seq);
      for (let before = at; before >= Math.max(0, at - 64); before -= 1) {
        const [detail] = await this.#details(owner.log, before, 1);
        if (detail?.step.events.includes(seq)) at = before;
      }
      const [detail] = await this.#details(owner.log, Math.max(at, 0), 1);
      if (!detail) throw absent(`step at ${seq}`, "");
      await this.#openBlobs([...detail.parts, ...detail.asked_parts, ...detail.kept]);
      return detail;
    });

  track: Source["track"] = (log, seq) => {
    const branch = this.#branch(log);
    const piece = Math.floor(Math.max(0, seq - branch.place - 1) / TRACK);
    return this.#get(`track ${log} ${piece}`, async () => {
      const found = await this.pieces.get<TrackRow>(`track/${this.#index(branch.log)}/${piece}`);
      if (!found) throw absent(`state at ${seq}`, "");
      return wholeTrack(found);
    });
  };

  events: Source["events"] = (log, first, count) =>
    this.#get(`events ${log} ${first} ${count}`, async (): Promise<EventPage> => {
      const branch = this.#branch(log);
      const events: EventShape[] = [];
      for (let seq = first; seq < first + count && seq <= branch.tip; seq += 1) {
        const owner = this.#owner(branch, seq);
        const piece = Math.floor((seq - owner.place - 1) / EVENTS);
        const name = `events/${this.#index(owner.log)}/${piece}`;
        const found = await this.#records(name);
        const known = found?.events[seq - found.first];
        if (!found || !known) continue;
        const before = found.events[seq - 1 - found.first]?.id;
        const causes = (known.causes ?? []).map((cause) => this.#causeText(cause as string | [number, number]));
        events.push({ ...BLANK, session: owner.log, seq, parents: before ? [before] : [], ...known, causes });
      }
      return { log, first, tip: branch.tip, events };
    });

  /** Return a piece of events. In the file, the time of an event counts from the one before it. */
  async #records(name: string): Promise<EventPiece | null> {
    const found = await this.pieces.get<EventPiece>(name);
    const known = found && this.#timed.get(found);
    if (!found || known) return known ?? null;
    let time = 0;
    const events = found.events.map((each) => ({ ...each, time: (time += each.time ?? 0) }));
    const whole = { first: found.first, events };
    this.#timed.set(found, whole);
    return whole;
  }

  /** A cause is an id, or the place of an event in this file. */
  #causeText(cause: string | readonly [number, number]): string {
    return typeof cause === "string" ? cause : `${this.branch(cause[0]).name}@${cause[1]}`;
  }

  // ── files ──────────────────────────────────────────────────────────────────────────────────

  folder: Source["folder"] = (tree, path) =>
    this.#get(`folder ${tree} ${path}`, () => this.#trees.folder(tree, path));

  file: Source["file"] = (tree, path, first = 1, count = 1000) =>
    this.#get(`file ${tree} ${path} ${first} ${count}`, async () => {
      const { entry, content } = await this.#trees.file(tree, path);
      if (content.image) this.#addresses.set(entry.key, `data:${content.image};base64,${content.data}`);
      else if (content.text !== undefined)
        this.#addresses.set(entry.key, `data:text/plain;charset=utf-8,${encodeURIComponent(content.text)}`);
      return this.#trees.shape(tree, path, entry, content, first, count);
    });

  diff: Source["diff"] = (left, right, path) =>
    this.#get(`diff ${left} ${right} ${path ?? ""}`, () => this.#trees.diff(left, right, path ?? ""));

  blame: Source["blame"] = (place, path) =>
    this.#get(`blame ${place} ${path}`, async (): Promise<BlameShape> => {
      const { branch, seq } = this.#place(place);
      const track = await this.track(branch.log, Math.max(seq, branch.place + 1)).get();
      const tree = treeAt(track, seq);
      if (!tree) throw absent("files at this place", "");
      return new FileBlame(this.#trees, this.head.family.branches, await this.#versions()).at(branch, seq, path, tree);
    });

  async #versions(): Promise<readonly Version[]> {
    return (await this.pieces.get<Version[]>("versions/0")) ?? [];
  }

  // ── prompts and causes ─────────────────────────────────────────────────────────────────────

  prompt: Source["prompt"] = (place) =>
    this.#get(`prompt ${place}`, async (): Promise<PromptShape> => {
      const rows = await this.pieces.get<PromptRow[]>("prompts/0");
      if (!rows) throw absent("prompts: they were left out", "The store has them: plait show S@k --prompt");
      const { branch, seq } = this.#place(place);
      for (let here: BranchShape | null = branch, last = seq; here; ) {
        const at = rows.findLastIndex((row) => row[0] === here!.log && row[1] <= last);
        if (at >= 0) return wholePrompt(rows, at);
        last = here.place;
        here = here.parent ? this.#branch(here.parent.log) : null;
      }
      const isCut = this.copy.leftOut.some((line) => line.includes("prompts"));
      if (!isCut) throw new Failure("NoPrompt", "No model was asked before this place.", "", 404);
      throw absent("prompt at or before this place", `The store may have it: plait show ${branch.short}@${seq} --prompt`);
    });

  line = async (log: number, seq: number): Promise<EventLine | null> => {
    const branch = this.head.family.branches[log];
    if (!branch) return this.foreign.lines[`${log}@${seq}`] ?? null;
    const piece = Math.floor((seq - branch.place - 1) / EVENTS);
    const [found, records] = await Promise.all([
      this.pieces.get<LinkPiece>(`links/${log}/${piece}`),
      this.#records(`events/${log}/${piece}`),
    ]);
    const [line, record] = [found?.lines[seq - found.first], records?.events[seq - records.first]];
    if (!line || !record) return null;
    const [says, details, links] = line;
    return [record.kind ?? "", record.actor ?? "", record.time ?? 0, says, details, links.map((link) => wholeLink(link, log, seq))];
  };

  branch = (log: number): { id: string; name: string; isHere: boolean } => {
    const { branches } = this.head.family;
    const [id, name] = branches[log] ? [branches[log].log, branches[log].name] : this.foreign.logs[log - branches.length]!;
    return { id, name, isHere: log < branches.length };
  };

  async #subject(place: string, about: string): Promise<{ log: number; seq: number }> {
    const { branch, seq } = this.#place(place);
    const line = /^(.+):(\d{1,9})$/.exec(about);
    if (line) {
      const blame = await this.blame(place, line[1]!).get();
      const writer = blame.writers[blame.lines[Number(line[2]) - 1] ?? -1];
      if (!writer) throw absent(`line ${about}`, "");
      return { log: this.#index(writer.log), seq: writer.seq };
    }
    if (about && !/^\d+$/.test(about))
      throw absent(`trace of “${about}”`, `Ask the store: plait why ${branch.short}@${seq} "${about}"`);
    const wanted = about ? Number(about) : seq;
    return { log: this.#index(this.#owner(branch, wanted).log), seq: wanted };
  }

  why: Source["why"] = (place, about) =>
    this.#get(`why ${place} ${about}`, async (): Promise<TraceShape> => {
      const { log, seq } = await this.#subject(place, about);
      return walk(this, log, seq, async (_log, _seq, line) => line[5], about || this.#eventText(log, seq), TRACE_MAX);
    });

  influence: Source["influence"] = (place, about) =>
    this.#get(`influence ${place} ${about}`, async (): Promise<TraceShape> => {
      const { log, seq } = await this.#subject(place, about);
      const forward = await (this.#links ??= this.#forwardLinks());
      return walk(this, log, seq, async (at, k) => forward.get(`${at}@${k}`) ?? [], about || this.#eventText(log, seq), TRACE_MAX);
    });

  #eventText(log: number, seq: number): string {
    return `event ${seq} of ${this.branch(log).name}`;
  }

  /** Turn the links of all events around. */
  async #forwardLinks(): Promise<Map<string, Link[]>> {
    const found = new Map<string, Link[]>();
    for (const [at] of this.head.family.branches.entries())
      for (const name of this.pieces.names(`links/${at}`)) {
        const piece = (await this.pieces.get<LinkPiece>(name))!;
        piece.lines.forEach(([, , links], index) => {
          for (const [how, log, seq] of links.map((link) => wholeLink(link, at, piece.first + index))) {
            const way = FORWARD[how];
            if (!way) continue;
            const key = `${log}@${seq}`;
            const ends = way === "followed by" ? 0 : 1;
            const link: Link = [way, at, piece.first + index, ends];
            found.set(key, [...(found.get(key) ?? []), link]);
          }
        });
      }
    return found;
  }

  compare: Source["compare"] = (left, right) =>
    this.#get(`compare ${left} ${right}`, async () => {
      const [one, two] = [this.#place(left), this.#place(right)];
      const name = (a: typeof one, b: typeof one) => `${a.branch.log}@${a.seq}..${b.branch.log}@${b.seq}`;
      const known = (await this.pieces.get<Record<string, ComparisonRow>>("comparisons/0")) ?? {};
      const found = known[name(one, two)];
      if (!found) throw absent(`comparison of ${left} and ${right}`, `Write one: plait view ${left}..${right} -o FILE`);
      const step = async (ref: readonly [number, number] | null) =>
        ref ? ((await this.#details(this.branch(ref[0]).id, ref[1], 1))[0]?.step ?? null) : null;
      const rows = await Promise.all(
        found.rows.map(async ([one, two, is_same]) => ({ left: await step(one), right: await step(two), is_same })),
      );
      return { ...found, rows };
    });

  // ── blobs and acts ─────────────────────────────────────────────────────────────────────────

  async #openBlobs(parts: readonly PartShape[]): Promise<void> {
    for (const { blob } of parts) {
      if (!blob || this.#addresses.has(blob)) continue;
      const found = await this.pieces.get<Record<string, { media_type: string; data: string }>>(`blobs/${blob}`);
      const row = found?.[blob];
      if (row) this.#addresses.set(blob, `data:${row.media_type};base64,${row.data}`);
    }
  }

  /** The address of a blob that the file has; "": it was left out. */
  blobAddress(digest: string): string {
    return this.#addresses.get(digest) ?? "";
  }

  act(): Promise<never> {
    return Promise.reject(refusal());
  }

  post(): Promise<never> {
    return Promise.reject(refusal());
  }

  forget(): void {
    // nothing new comes to a file
  }
}

const BLANK: EventShape = {
  id: "",
  session: "",
  seq: 0,
  kind: "",
  time: 0,
  actor: "",
  behalf: null,
  origin: null,
  run: null,
  call: null,
  parents: [],
  causes: [],
  body: null as Json,
  state: "whole",
  why: "",
};

const NO_STEP: StepShape = {
  index: 0,
  log: "",
  first: 0,
  seq: 0,
  events: [],
  type: "note",
  state: "done",
  verb: "",
  subject: "",
  says: "",
  actor: "",
  path: "",
  time: 0,
  took_us: null,
  marks: [],
  files: [],
  exit_code: null,
  tokens: 0,
  cost_usd: null,
  is_rewound: false,
  links: [],
};
const NO_PART: PartShape = { type: "text", text: "", name: "", media_type: "", blob: null, size: 0, is_cut: false };
const NO_DETAIL: StepDetail = {
  step: NO_STEP,
  branch: "",
  arguments: null,
  parts: [],
  asked_parts: [],
  calls: [],
  failure: "",
  traceback: "",
  reason: "",
  effect: "",
  version: "",
  idempotency_key: "",
  placement: null,
  placement_text: "",
  model: "",
  usage: null,
  latency_us: null,
  attempts: [],
  approvals: [],
  tree_before: null,
  tree_after: null,
  kept: [],
  delta: null,
  fields: {},
  ask: null,
};

/** Fill in the values that were left out because they say nothing. */
/** Fill in what a step's row leaves out. Its events are all from the first to the last, unless they are named. */
function wholeStep(row: StepRow, log: string, index: number): StepDetail {
  const { first = 0, seq = 0 } = row.step;
  const events = row.step.events ?? Array.from({ length: seq - first + 1 }, (_, at) => first + at);
  const parts = (given: readonly Partial<PartShape>[] | undefined) => (given ?? []).map((part) => ({ ...NO_PART, ...part }));
  return {
    ...NO_DETAIL,
    ...row,
    step: { ...NO_STEP, log, index, ...row.step, events },
    parts: parts(row.parts),
    asked_parts: parts(row.asked_parts),
    kept: parts(row.kept),
  };
}

const OWN_LOG = -1;

/** A link within the log of its event tells how many events it goes back. */
function wholeLink(link: Link, log: number, seq: number): Link {
  const [how, to, back, isFollowed] = link;
  return to === OWN_LOG ? [how, log, seq - back, isFollowed] : link;
}

const NANO = 1e9;
const AMOUNTS = [
  "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "estimated_tokens", "cost_usd",
  "unpriced", "model_calls", "tool_calls",
] as const satisfies readonly (keyof SpentShape)[];

/** Add up what was spent from change to change. Dollars are counted in billionths. */
function wholeTrack(row: TrackRow): TrackShape {
  let spent = row.start.spent;
  const changes = row.changes.map(({ spent: more, ...rest }): TrackChange => {
    if (more === undefined) return rest;
    if (!isDifferences(more)) return { ...rest, spent: (spent = more) };
    const after = { ...spent };
    more.forEach((amount, at) => {
      const name = AMOUNTS[at]!;
      after[name] = name === "cost_usd" ? (Math.round((spent.cost_usd ?? 0) * NANO) + amount) / NANO : spent[name] + amount;
    });
    return { ...rest, spent: (spent = after) };
  });
  return { ...row, changes };
}

function isDifferences(more: readonly number[] | SpentShape): more is readonly number[] {
  return Array.isArray(more);
}

/** Return the tree at a place of a track; null: there are no files. */
function treeAt(track: TrackShape, seq: number): string | null {
  let tree = track.start.tree;
  for (const change of track.changes) {
    if (change.seq > seq) break;
    if (change.tree !== undefined) tree = change.tree;
  }
  return tree;
}

/** Put a prompt together: its own turns after those that the prompts before it share with it. */
function wholePrompt(rows: readonly PromptRow[], at: number): PromptShape {
  const [log, , shared, rest] = rows[at]!;
  if (rest.turns && shared === 0 && rest.instruction !== undefined && rest.tools !== undefined)
    return rest as PromptShape;
  const before = rows.findLastIndex((row, index) => index < at && row[0] === log && row[3].agent === rest.agent);
  if (before < 0) return rest as PromptShape;
  const base = wholePrompt(rows, before);
  const { instruction, tools, view, output, parameters } = base;
  const turns = [...base.turns.slice(0, shared), ...(rest.turns ?? [])];
  return { instruction, tools, view, output, parameters, ...rest, turns } as PromptShape;
}

const NOTHING_SPENT: SpentShape = {
  input_tokens: 0,
  output_tokens: 0,
  cached_tokens: 0,
  reasoning_tokens: 0,
  estimated_tokens: 0,
  cost_usd: 0,
  unpriced: 0,
  model_calls: 0,
  tool_calls: 0,
};

function summary(branch: BranchShape, session: SessionShape): SessionSummary {
  return {
    log: branch.log,
    short: branch.short,
    name: branch.name,
    title: session.title,
    label: session.label,
    status: branch.status,
    standing: branch.standing,
    is_due: branch.is_due,
    workflow: session.runs[session.runs.length - 1]?.workflow ?? "",
    user: session.user,
    project: session.project,
    tags: session.tags,
    parent: branch.parent,
    is_branch_of_run: false,
    branch_count: 0,
    opened: session.opened,
    updated: session.updated,
    tip: branch.tip,
    event_count: branch.tip - branch.place,
    spent: branch.spent,
    spent_unmerged: NOTHING_SPENT,
    waiting: 0,
    queued: session.queued,
    last_text: "",
  };
}
