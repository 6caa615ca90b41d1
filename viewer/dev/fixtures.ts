/** A small family like a real repair with two branches, and a large one that is made up. */

import type {
  BranchShape, FamilyShape, FileDiff, OutlineShape, SpentShape, StepDetail, StepMark, StepShape,
  StepState, StepType, StretchShape, TrackChange, TrackShape, TrackState,
} from "../src/shapes";

const START = 1_750_000_000_000_000;
const spent = (tokens: number): SpentShape => ({
  input_tokens: Math.round(tokens * 0.8), output_tokens: Math.round(tokens * 0.2), cached_tokens: 0,
  reasoning_tokens: 0, estimated_tokens: 0, cost_usd: tokens * 4e-6, unpriced: 0,
  model_calls: Math.ceil(tokens / 60), tool_calls: Math.ceil(tokens / 70),
});

type Given = Omit<Partial<StepShape>, "events"> & { type: StepType; events: number };

class FakeLog {
  readonly steps: StepShape[] = [];
  constructor(readonly log: string, public seq: number, public clock: number) {}
  add({ events, ...given }: Given): StepShape {
    const first = this.seq + 1;
    this.seq += events;
    this.clock += (given.took_us ?? 20_000) + 40_000;
    const step: StepShape = {
      index: this.steps.length, log: this.log, first, seq: this.seq,
      events: Array.from({ length: events }, (_, i) => first + i),
      state: "done", verb: "", subject: "", says: "", actor: "agent:coder", path: "repair/coder",
      time: this.clock, took_us: null, marks: [], files: [], exit_code: null, tokens: 0,
      cost_usd: null, is_rewound: false, links: [], ...given,
    };
    this.steps.push(step);
    return step;
  }
}

const id = (name: string) => (name + "0123456789abcdef".repeat(4)).slice(0, 32);
const ROOT = id("76de0d89");
const REJECT = id("a41c07b2");
const CLAMP = id("5d20e9f1");

const root = new FakeLog(ROOT, 0, START);
root.add({ type: "message", events: 2, says: "Checkout goes negative: see ISSUE.md", actor: "human:u-17", path: "" });
root.add({ type: "placement", events: 1, verb: "placed", says: "local, overlay, network off", path: "" });
root.add({ type: "run", events: 2, says: "run started", actor: "program" });
root.add({ type: "tool", events: 5, verb: "read_file", subject: "ISSUE.md", says: "A coupon larger than the cart gives a negative total.", tokens: 21, took_us: 301_000 });
root.add({ type: "reply", events: 3, says: "Clamp the discount, or reject the coupon. Try both.", tokens: 39, cost_usd: 0.0002 });
const FORK_AT = root.seq;
const reject = new FakeLog(REJECT, FORK_AT, root.clock);
reject.add({ type: "fork", events: 1, verb: "forked", subject: "reject", marks: ["fork"], links: [{ log: ROOT, seq: FORK_AT }] });
reject.add({ type: "tool", events: 4, verb: "read_file", subject: "cart.py", says: "return sum(p for p in prices) - coupon", tokens: 25, took_us: 3_000 });
reject.add({ type: "tool", events: 4, verb: "edit_file", subject: "cart.py", files: ["cart.py"], marks: ["files"], tokens: 85, took_us: 2_000 });
reject.add({ type: "tool", events: 4, verb: "shell", subject: "python3 -B -m unittest -q 2>&1 | tail -4", says: "FAILED (errors=1)", tokens: 85, took_us: 387_000, exit_code: 0 });
reject.add({ type: "reply", events: 3, says: "It is rejected now.", tokens: 38, cost_usd: 0.0002 });
reject.add({ type: "tool", events: 4, verb: "shell", subject: "python3 -B -m unittest -q", says: "FAILED (errors=1)", exit_code: 1, state: "failed", marks: ["failed"], took_us: 461_000 });
reject.add({ type: "verdict", events: 1, verb: "tests", says: "failed", state: "failed", marks: ["failed"] });
const clamp = new FakeLog(CLAMP, FORK_AT, reject.clock);
clamp.add({ type: "fork", events: 1, verb: "forked", subject: "clamp", marks: ["fork"], links: [{ log: ROOT, seq: FORK_AT }] });
clamp.add({ type: "tool", events: 4, verb: "read_file", subject: "cart.py", says: "return sum(p for p in prices) - coupon", tokens: 25, took_us: 4_000 });
clamp.add({ type: "tool", events: 4, verb: "edit_file", subject: "cart.py", files: ["cart.py"], marks: ["files"], tokens: 67, took_us: 1_000 });
const EDIT = clamp.seq;
clamp.add({ type: "tool", events: 4, verb: "shell", subject: "python3 -B -m unittest -q 2>&1 | tail -4", says: "OK", tokens: 67, took_us: 364_000, exit_code: 0 });
clamp.add({ type: "reply", events: 3, says: "Clamped at zero.", tokens: 35, cost_usd: 0.0002 });
clamp.add({ type: "tool", events: 4, verb: "shell", subject: "python3 -B -m unittest -q", says: "OK", exit_code: 0, took_us: 470_000 });
clamp.add({ type: "verdict", events: 1, verb: "tests", says: "passed", marks: ["passed"] });
root.clock = clamp.clock;
root.add({ type: "merge", events: 1, verb: "merged", subject: "clamp", marks: ["merge"], links: [{ log: CLAMP, seq: clamp.seq }] });
root.add({ type: "fact", events: 1, verb: "strategy", says: '"clamp"' });
root.clock += 7_200_000_000;
root.add({ type: "taken", events: 2, says: "taken up again after a kill", marks: ["kill"], actor: "human:u-17" });
root.add({ type: "tool", events: 6, verb: "shell", subject: "rm -f ISSUE.md", files: ["ISSUE.md"], marks: ["files", "approval"], tokens: 15, took_us: 402_000, exit_code: 0 });
root.add({ type: "reply", events: 3, says: "Tidy.", tokens: 9, cost_usd: 0.0001 });
root.add({ type: "ended", events: 1, says: "run finished", actor: "program" });

const logs = new Map([root, reject, clamp].map((each) => [each.log, each]));
const branch = (log: FakeLog, name: string, color: number, extra: Partial<BranchShape>): BranchShape => ({
  log: log.log, short: log.log.slice(0, 8), name, status: "finished", standing: "finished", is_due: false, parent: null, place: 0,
  tip: log.seq, color, step_count: log.steps.length, merged_into: [], spent: spent(120), ...extra,
});
const MERGE = root.steps[5]!.seq;
const stretch = (branch: number, lane: number, log: FakeLog, from: number, count: number, parents: number[]): StretchShape => ({
  branch, lane, first: log.steps[from]!.first, last: log.steps[from + count - 1]!.seq, first_step: from, step_count: count, parents,
});
const family: FamilyShape = {
  root: ROOT, title: "negative total", lane_count: 3, number: 1, spent: spent(0), spent_unmerged: spent(0),
  branches: [
    branch(root, "negative total", 0, {}),
    branch(reject, "reject", 1, { parent: { log: ROOT, seq: FORK_AT }, place: FORK_AT }),
    branch(clamp, "clamp", 2, { parent: { log: ROOT, seq: FORK_AT }, place: FORK_AT, merged_into: [{ log: ROOT, seq: MERGE }] }),
  ],
  stretches: [
    stretch(0, 0, root, 0, 5, []),
    stretch(1, 1, reject, 0, 7, [0]),
    stretch(2, 2, clamp, 0, 7, [0]),
    stretch(0, 0, root, 5, 6, [0, 2]),
  ],
};

// ── large ────────────────────────────────────────────────────────────────────────────────────

const BIG = id("b1600000");
const bigLogs = new Map<string, FakeLog>();
let bigFamily: FamilyShape | null = null;

function big(): FamilyShape {
  if (bigFamily) return bigFamily;
  const types: StepType[] = ["tool", "reply", "tool", "tool", "message", "verdict"];
  const trunk = new FakeLog(BIG, 0, START);
  const branches: BranchShape[] = [];
  const stretches: StretchShape[] = [];
  bigLogs.set(BIG, trunk);
  let last = -1;
  let random = 7;
  const next = () => (random = (random * 1_103_515_245 + 12_345) & 0x7fffffff) / 0x7fffffff;
  const fill = (log: FakeLog, count: number) => {
    const from = log.steps.length;
    for (let i = 0; i < count; i += 1) {
      const type = types[Math.floor(next() * types.length)]!;
      const marks: StepMark[] = [];
      if (type === "tool" && next() < 0.2) marks.push("files");
      if (type === "verdict") marks.push(next() < 0.5 ? "passed" : "failed");
      const state: StepState = marks.includes("failed") ? "failed" : "done";
      if (next() < 0.002) log.clock += 3_600_000_000;
      log.add({ type, events: 3, verb: type === "tool" ? "shell" : "", subject: type === "tool" ? "make test" : "", says: `words of step ${i}`, marks, state, files: marks.includes("files") ? ["src/a.py"] : [], tokens: 50, took_us: 120_000 });
    }
    return from;
  };
  for (let b = 0; b < 60; b += 1) {
    const from = fill(trunk, 900);
    const parents = last < 0 ? [] : b % 3 === 0 ? [last, stretches.length - 1] : [last];
    stretches.push(stretch(0, 0, trunk, from, 900, parents));
    last = stretches.length - 1;
    const log = new FakeLog(id(`b16${String(b + 1).padStart(5, "0")}`), trunk.seq, trunk.clock);
    bigLogs.set(log.log, log);
    fill(log, 700);
    stretches.push(stretch(b + 1, (b % 6) + 1, log, 0, 700, [last]));
    trunk.clock = log.clock;
    branches.push(branch(log, `try-${b + 1}`, b + 1, { parent: { log: BIG, seq: trunk.seq }, place: trunk.seq }));
  }
  bigFamily = {
    root: BIG, title: "large", lane_count: 7, number: 1, spent: spent(0), spent_unmerged: spent(0),
    branches: [branch(trunk, "large", 0, {}), ...branches], stretches,
  };
  return bigFamily;
}

// ── answers ──────────────────────────────────────────────────────────────────────────────────

function logOf(log: string): FakeLog | undefined {
  if (log.startsWith("b16")) big();
  return logs.get(log) ?? bigLogs.get(log);
}

function outline(log: FakeLog, from: number): OutlineShape {
  const steps = log.steps.slice(from);
  return {
    log: log.log, from_index: from, total: log.steps.length, firsts: steps.map((s) => s.first),
    seqs: steps.map((s) => s.seq), times_ms: steps.map((s) => Math.floor(s.time / 1000)),
    types: steps.map((s) => s.type), states: steps.map((s) => s.state),
    marks: Object.fromEntries(steps.filter((s) => s.marks.length).map((s) => [s.index, s.marks])), rewound: [], number: 1,
  };
}

const BEFORE = ['"""The cart."""', "", "", "def total(prices, coupon=0):", '    """What is to be paid."""', "    return sum(p for p in prices) - coupon"];
const AFTER = [...BEFORE.slice(0, 5), "    return max(0, sum(prices) - coupon)"];
const TREE_1 = "eafba530".repeat(8);
const TREE_2 = "77c1d2e4".repeat(8);

function state(log: FakeLog, seq: number): TrackState {
  const isAfter = log === clamp ? seq >= EDIT : log === root ? seq >= MERGE : false;
  const tree = seq < 3 ? null : isAfter ? TREE_2 : TREE_1;
  return {
    seq, tree, facts: {}, pending: {}, verdicts: {}, placement_text: seq < 3 ? "" : "local, overlay, network off",
    status: "running", spent: spent(seq * 7), budget: { tokens_max: 2000 }, budget_left: { tokens_max: 2000 - seq * 7 }, last_message_seq: 2,
  };
}

function track(log: FakeLog): TrackShape {
  const first = log.steps[0]!.first;
  const changes: TrackChange[] = log.steps.slice(0, 2000).map((step) => {
    const now = state(log, step.seq);
    return {
      seq: step.seq, tree: now.tree, spent: now.spent, budget_left: now.budget_left, placement_text: now.placement_text,
      ...(step.type === "verdict" ? { verdicts: { tests: step.state === "done" } } : {}),
      ...(step.type === "fact" ? { facts: { strategy: { key: "strategy", kind: "decision" as const, value: "clamp", at: { log: log.log, seq: step.seq } } } } : {}),
    };
  });
  return { log: log.log, start: state(log, first), last: log.seq, changes };
}

function detail(step: StepShape): StepDetail {
  const isTool = step.type === "tool";
  const text = step.verb === "shell" ? `\u001b[32m......\u001b[0m\n${"-".repeat(70)}\nRan 6 tests in 0.002s\n\n\u001b[1m${step.says}\u001b[0m` : step.says;
  const hasFiles = step.files.length > 0;
  return {
    step, branch: family.branches.find((b) => b.log === step.log)?.name ?? "large",
    arguments: isTool ? (step.verb === "edit_file" ? { path: "cart.py", old: BEFORE[5]!.trim(), new: AFTER[5]!.trim() } : step.verb === "shell" ? { command: step.subject } : { path: step.subject }) : null,
    parts: text ? [{ type: "text", text, name: "", media_type: "", blob: null, size: text.length, is_cut: false }] : [],
    asked_parts: [], calls: step.type === "reply" ? ["edit_file"] : [], failure: step.state === "failed" ? "exit code 1" : "",
    traceback: "", reason: "", effect: isTool ? "workspace" : "", version: "", idempotency_key: isTool ? "9f2c…" : "", placement: null,
    placement_text: isTool ? "local, overlay, network off" : "", model: step.type === "reply" ? "gpt-5-mini" : "",
    usage: step.type === "reply" ? spent(step.tokens) : null, latency_us: step.type === "reply" ? 812_000 : null,
    attempts: [], approvals: step.marks.includes("approval") ? [
      { seq: step.first + 1, how: "requested", actor: "agent:coder", time: step.time, words: "", edited: null },
      { seq: step.first + 2, how: "granted", actor: "human:u-17", time: step.time + 60_000_000, words: "It is in the tracker.", edited: null },
    ] : [],
    tree_before: hasFiles ? TREE_1 : null, tree_after: hasFiles ? TREE_2 : null, kept: [], delta: null, fields: {}, ask: null,
  };
}

const cartDiff: FileDiff = {
  status: "changed", path: "cart.py", old_path: null, added: 1, removed: 1, form: "text", is_cut: false,
  hunks: [[[" ", 4, 4, BEFORE[3]!], [" ", 5, 5, BEFORE[4]!], ["-", 6, 0, BEFORE[5]!], ["+", 0, 6, AFTER[5]!]]],
};

export function answer(url: URL): unknown {
  const parts = url.pathname.split("/").slice(2).map(decodeURIComponent);
  const get = (key: string, other = 0) => Number(url.searchParams.get(key) ?? other);
  const [head, second = "", third, fourth] = parts;
  if (head === "store") return { store: "s1", address: ".plait", version: "0", actor: "human:u-17", read_only: false, can_run: true, number: 1 };
  if (head === "outlines") return { outlines: url.searchParams.get("logs")!.split(",").map((log) => outline(logOf(log)!, 0)) };
  if (head === "logs") {
    const log = logOf(second);
    if (!log) return undefined;
    if (third === "outline") return outline(log, get("from"));
    if (third === "track") return track(log);
    if (third === "events") return { events: Array.from({ length: Math.min(get("count", 1), 50) }, (_, i) => ({ id: `ev${get("first") + i}`.padEnd(64, "0"), session: log.log, seq: get("first") + i, kind: "ToolRequested", time: START, actor: "agent:coder", behalf: "human:u-17", origin: null, run: "run-1", call: "repair/coder", parents: [], causes: [], state: "whole", why: "", body: { tool: "shell", arguments: { command: "make test" } } })) };
    if (third === "steps" && fourth) return detail(log.steps.find((s) => s.events.includes(Number(fourth))) ?? log.steps.at(-1)!);
    if (third === "steps") return { log: log.log, first: get("first"), total: log.steps.length, steps: log.steps.slice(get("first"), get("first") + get("count", 100)) };
  }
  if (head === "sessions" && second) {
    const [name, seq] = second.split("@");
    const isBig = name!.startsWith("b16");
    const all = isBig ? big() : family;
    const found = all.branches.find((b) => b.log === name || b.short === name || b.name === name) ?? (name === "" ? all.branches[0] : undefined);
    if (!found) return undefined;
    if (third === "family") return all;
    if (third === "blame") return { path: "cart.py", writers: [
      { log: ROOT, seq: 3, event: "e3", kind: "PlacementChanged", tool: "", actor: "program", time: START, branch: "" },
      { log: CLAMP, seq: EDIT, event: "e26", kind: "ToolReturned", tool: "edit_file", actor: "agent:coder", time: START, branch: "clamp" },
    ], lines: [0, 0, 0, 0, 0, 1] };
    if (third === "why" || third === "influence") return { about: "cart.py:6", complete: true, steps: [
      ["is", 0, "edit_file cart.py", CLAMP, EDIT, "subject"],
      ["decided in", 1, "reply of coder, asked with 3 messages and 1 tool result", CLAMP, EDIT - 2, "decision"],
      ["having seen", 2, "read_file cart.py", CLAMP, EDIT - 4, "context"],
      ["told to", 2, "Clamp the discount, or reject the coupon. Try both.", ROOT, 13, "decision"],
      ["having seen", 3, "read_file ISSUE.md: “A coupon larger than the cart gives a negative total.”", ROOT, 10, "context"],
      ["asked by", 3, "u-17: Checkout goes negative: see ISSUE.md", ROOT, 2, "decision"],
    ].map(([how, depth, says, log, seq, relation]) => ({ how, depth, says, session: log, seq, relation, id: `${log}${seq}`, kind: "ToolReturned", branch: "", actor: "agent:coder", time: START, reason: "", placement: "", files: [] })) };
    if (third === "prompt") return { session: found.log, place: Number(seq), event: "e", agent: "agent:coder", model: "gpt-5-mini", as_sent: true, digest: "d".repeat(64), recorded: "d".repeat(64), instruction: "You repair small programs. Change as little as possible.", tools: [{ name: "shell", description: "Run a command.", schema: {} }, { name: "edit_file", description: "Replace a text in a file.", schema: {} }], parameters: { temperature: 0 }, output: null, view: {}, new_from: 2, left_out: [],
      turns: [{ type: "Said", parts: [{ type: "Text", text: "Checkout goes negative: see ISSUE.md" }] }, { type: "Answered", parts: [{ type: "Text", text: "I read the issue." }], calls: [{ tool: "read_file", arguments: { path: "ISSUE.md" } }] }, { type: "Returned", results: [{ tool: "read_file", failed: false, parts: [{ type: "Text", text: "A coupon larger than the cart gives a negative total." }] }] }] };
    return { id: found.log, short: found.short, place: Number(seq) || found.tip, title: all.title, label: null, status: "finished", tree: TREE_2 };
  }
  if (head === "trees") {
    if (third === "file") {
      const lines = url.searchParams.get("path") === "cart.py" ? (second === TREE_2 ? AFTER : BEFORE) : ["A coupon larger than the cart gives a negative total."];
      return { tree: second, path: url.searchParams.get("path"), form: "text", size: 160, media_type: "text/x-python", line_count: lines.length, first_line: 1, lines, cut_lines: [], blob: null };
    }
    if (third === "diff") return { left: second, right: fourth, files: second === fourth ? [] : [cartDiff] };
    return { tree: second, path: "", entries: ["ISSUE.md", "cart.py", "test_cart.py"].map((name) => ({ name, path: name, kind: "file", size: 160, is_executable: false, target: "" })) };
  }
  if (head === "sessions") return { sessions: [], next: null, number: 1 };
  if (head === "inbox") return { asks: [] };
  return undefined;
}
