/** The cursor, and the family it stands in. Everything on the workbench follows from here. */

import { batch, computed, signal } from "@preact/signals";
import type { BranchShape, FamilyShape, SessionShape, StepShape } from "../shapes";
import type { Source } from "../source";
import { asFailure, Failure } from "./answer";
import { onFeed, type News } from "./feed";
import { grownFamily, isPlainKind, type LogEnd } from "./growth";
import { laneLinks, laneSize } from "./lanes";
import { go, route, sessionRoute, writeAddress, type SessionRoute } from "./router";
import { LogOutline, rowOutline, Rows, type Place } from "./rows";

const PAGE = 100;
/** Between two refreshes lies so long, and as long as the last one took. */
const REFRESH_MS = 40;
const REFRESH_MAX_MS = 1000;
/** What the family says beyond its outlines, as what was spent, may be so old. */
const FAMILY_MS = 1000;
const OPEN_MAX = 500;

export const ROW_HEIGHT = 26;

/** Return the place of a route. A damaged session has no state any more, and still its steps. */
function placeOf(family: FamilyShape, target: SessionRoute, found: SessionShape | Failure): Place {
  if (!(found instanceof Failure)) return { log: found.id, seq: found.place };
  const branch = family.branches.find((each) => [each.log, each.short, each.name].includes(target.session));
  if ((found.kind !== "StoreCorrupt" && found.status !== 500) || !branch) throw found;
  return { log: branch.log, seq: target.seq ?? branch.tip };
}

export class Model {
  readonly family = signal<FamilyShape | null>(null);
  readonly failure = signal<Failure | null>(null);
  readonly cursor = signal<Place | null>(null);
  /** True: the address names no place, so the cursor goes with the end of the session. */
  readonly isFollowing = signal(false);
  /** How many forms are filled in: while there is one, the cursor stays. */
  #holds = 0;
  /** The row under the pointer, in the list or on the strip; -1: none. */
  readonly hovered = signal(-1);
  /** True while the cursor is dragged or a key is held: panels ask later. */
  readonly isGliding = signal(false);
  /** Counts arrivals of words and outlines. */
  readonly version = signal(0);

  readonly rows = computed(() => (this.family.value ? new Rows(this.family.value) : null));
  readonly links = computed(() => (this.rows.value ? laneLinks(this.rows.value) : []));
  readonly laneSize = computed(() => laneSize(this.family.value?.lane_count ?? 1, ROW_HEIGHT));
  readonly outline = computed(() => {
    void this.outlineVersion.value;
    return this.rows.value ? rowOutline(this.rows.value, this.outlines) : null;
  });
  readonly row = computed(() => {
    void this.outlineVersion.value;
    const place = this.cursor.value;
    if (!place) return -1;
    const row = this.rowOf(place);
    if (row !== null) return row;
    return this.#firstRow && this.#firstRow.place === place ? this.#firstRow.row : -1;
  });
  readonly branch = computed(() => {
    const place = this.cursor.value;
    const rows = this.rows.value;
    const index = place && rows ? rows.branchOf.get(place.log) : undefined;
    return index === undefined ? null : this.family.value!.branches[index]!;
  });
  /** The words of the step at the cursor; null: not here yet. */
  readonly step = computed(() => {
    void this.version.value;
    return this.stepAt(this.row.value);
  });

  readonly outlineVersion = signal(0);
  readonly outlines = new Map<string, LogOutline>();
  #words = new Map<string, (StepShape | undefined)[]>();
  #asked = new Set<string>();
  /** The steps whose words no news have made old. Old words stay until new ones are here. */
  #fresh = new WeakSet<StepShape>();
  #generation = new Map<string, number>();
  #opened = "";
  #turn = 0;
  #firstRow: { place: Place; row: number } | null = null;
  /** The last event of each log that has news. */
  #changed = new Map<string, number>();
  /** True: the news may be of more than the ends of logs. */
  #needsFamily = false;
  #familyAt = 0;
  #isFamilyOld = false;
  #refreshTook = 0;
  #refreshEnd = 0;
  #isRefreshing = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #addressTimer: ReturnType<typeof setTimeout> | undefined;
  #lastGlide = 0;

  constructor(readonly source: Source) {
    onFeed("news", (data) => this.#hear(data as readonly News[]));
  }

  // ── opening ────────────────────────────────────────────────────────────────────────────────

  /** Show the place of a route. */
  async open(target: SessionRoute): Promise<void> {
    const turn = (this.#turn += 1);
    const known = this.#branchNamed(target.session);
    if (known && this.rows.value) {
      this.failure.value = null;
      this.#opened = target.session;
      this.isFollowing.value = target.seq === null;
      this.#put(this.rows.value.ownPlace({ log: known.log, seq: target.seq ?? known.tip }));
      return;
    }
    const named = target.seq === null ? target.session : `${target.session}@${target.seq}`;
    try {
      const [family, found] = await Promise.all([
        this.source.family(target.session).get(),
        this.source.session(named).get().catch(asFailure),
      ]);
      if (turn !== this.#turn) return;
      this.#forgetAll();
      const rows = new Rows(family);
      const place = rows.ownPlace(placeOf(family, target, found));
      batch(() => {
        this.family.value = family;
        this.failure.value = null;
        this.isFollowing.value = target.seq === null;
        this.#opened = target.session;
        this.#put(place);
      });
      void this.#findFirstRow(place);
      await this.#loadOutlines(family.branches.map((branch) => branch.log));
    } catch (error) {
      if (turn !== this.#turn) return;
      batch(() => {
        this.failure.value = asFailure(error);
        this.#opened = "";
        this.family.value = null;
        this.cursor.value = null;
      });
    }
  }

  /** Find the row of the first place by its step: the outlines of a large family take longer. */
  async #findFirstRow(place: Place): Promise<void> {
    const detail = await this.source.detail(place.log, place.seq).get().catch(() => null);
    const row = detail ? (this.rows.value?.rowOfStep(detail.step.log, detail.step.index) ?? -1) : -1;
    if (row < 0 || this.cursor.value !== place) return;
    this.#firstRow = { place, row };
    this.outlineVersion.value += 1;
  }

  #branchNamed(session: string) {
    const family = this.family.value;
    if (!family || session === "@") return undefined;
    return (
      family.branches.find((each) => each.log === session || each.short === session) ??
      (session === this.#opened ? family.branches.find((each) => each.log === this.cursor.value?.log) : undefined)
    );
  }

  #forgetAll(): void {
    this.outlines.clear();
    this.#words.clear();
    this.#asked.clear();
    this.#changed.clear();
    this.#firstRow = null;
  }

  async #loadOutlines(logs: readonly string[]): Promise<void> {
    for (let i = 0; i < logs.length; i += 40) {
      const answer = await this.source.outlines(logs.slice(i, i + 40)).get();
      for (const each of answer.outlines) this.#outlineOf(each.log).take(each);
      this.outlineVersion.value += 1;
    }
  }

  #outlineOf(log: string): LogOutline {
    let outline = this.outlines.get(log);
    if (!outline) this.outlines.set(log, (outline = new LogOutline()));
    return outline;
  }

  // ── the cursor ─────────────────────────────────────────────────────────────────────────────

  #put(place: Place): void {
    const now = this.cursor.peek();
    if (now?.log !== place.log || now.seq !== place.seq) this.cursor.value = place;
  }

  /** Go with the end of the session, unless somebody fills a form in at the place. */
  #follow(): void {
    const log = this.cursor.peek()?.log;
    const branch = this.family.peek()?.branches.find((each) => each.log === log);
    if (this.#holds === 0 && this.isFollowing.peek() && branch) this.#put({ log: branch.log, seq: branch.tip });
  }

  /** Keep the cursor from following. Return the function that lets it go on. */
  hold(): () => void {
    this.#holds += 1;
    return () => {
      this.#holds -= 1;
      this.#follow();
    };
  }

  /** Go to a place: a click. It becomes an entry of the history. */
  goTo(place: Place, rest: Partial<SessionRoute> = {}): void {
    const own = this.rows.value?.ownPlace(place) ?? place;
    this.isFollowing.value = false;
    this.#put(own);
    const now = route.peek();
    if (now.screen !== "session") return go(sessionRoute(this.#nameOf(own.log), own.seq, rest));
    go({ ...now, session: this.#nameOf(own.log), seq: own.seq, line: null, about: "", ...rest });
  }

  /** Move on the way to a place: a drag, or a key that repeats. One entry for the whole way. */
  glideTo(row: number): void {
    const rows = this.rows.value;
    if (!rows || rows.count === 0) return;
    const at = Math.max(0, Math.min(rows.count - 1, row));
    const step = rows.stepAt(at)!;
    const seq = this.outlines.get(step.log)?.seqs[step.index] ?? this.stepAt(at)?.seq;
    if (seq === undefined || seq === 0) return;
    batch(() => {
      this.isFollowing.value = false;
      this.isGliding.value = true;
      this.#put({ log: step.log, seq });
    });
    clearTimeout(this.#addressTimer);
    this.#addressTimer = setTimeout(() => this.endGlide(), 180);
  }

  endGlide(): void {
    clearTimeout(this.#addressTimer);
    this.isGliding.value = false;
    const place = this.cursor.peek();
    const now = route.peek();
    if (!place || now.screen !== "session") return;
    const next = { ...now, session: this.#nameOf(place.log), seq: place.seq, line: null, about: "" };
    if (next.session === now.session && next.seq === now.seq) return;
    const isSameWay = performance.now() - this.#lastGlide < 1500;
    this.#lastGlide = performance.now();
    route.value = next;
    writeAddress(next, isSameWay ? "replace" : "push");
  }

  goToRow(row: number): void {
    const step = this.rows.value?.stepAt(row);
    const seq = step && this.seqAt(row);
    if (step && seq) this.goTo({ log: step.log, seq });
  }

  seqAt(row: number): number | undefined {
    const step = this.rows.value?.stepAt(row);
    if (!step) return undefined;
    return this.outlines.get(step.log)?.seqs[step.index] || this.stepAt(row)?.seq;
  }

  #nameOf(log: string): string {
    return this.family.value?.branches.find((branch) => branch.log === log)?.short ?? log;
  }

  /** A place in few words: `clamp@26`; in the root of the family `@13`. */
  placeName(place: Place): string {
    const rows = this.rows.value;
    const own = rows?.ownPlace(place) ?? place;
    const branch = this.branchOf(own.log);
    if (branch && !branch.parent) return `@${own.seq}`;
    return `${branch ? branch.name || branch.short : own.log.slice(0, 8)}@${own.seq}`;
  }

  branchOf(log: string): BranchShape | undefined {
    const index = this.rows.value?.branchOf.get(log);
    return index === undefined ? undefined : this.family.value!.branches[index];
  }

  revision(place: Place | null = this.cursor.value): string {
    return place ? `${place.log}@${place.seq}` : "";
  }

  /** Return the row of the step that stands for an event; null: it is not known here. */
  rowOf(place: Place): number | null {
    const rows = this.rows.value;
    const own = rows?.ownPlace(place);
    const outline = own && this.outlines.get(own.log);
    if (!rows || !own || !outline || outline.total === 0) return null;
    const row = rows.rowOfStep(own.log, outline.indexAt(own.seq));
    return row < 0 ? null : row;
  }

  /** Tell whether an event lies between the first and the last event of its step. */
  isInStep(place: Place): boolean {
    const own = this.rows.value?.ownPlace(place) ?? place;
    const outline = this.outlines.get(own.log);
    if (!outline) return false;
    const index = outline.indexAt(own.seq);
    return outline.firsts[index]! <= own.seq && own.seq <= outline.seqs[index]!;
  }

  // ── words ──────────────────────────────────────────────────────────────────────────────────

  stepAt(row: number): StepShape | null {
    const step = this.rows.value?.stepAt(row);
    return step ? (this.#words.get(step.log)?.[step.index] ?? null) : null;
  }

  /** Ask for the words of rows that are in sight, by pages. */
  need(first: number, end: number): void {
    const rows = this.rows.value;
    if (!rows) return;
    for (let row = first; row < end; row += 1) {
      const step = rows.stepAt(row);
      if (!step) continue;
      const words = this.#words.get(step.log)?.[step.index];
      if (words && this.#fresh.has(words)) continue;
      this.#askPage(step.log, Math.floor(step.index / PAGE));
    }
  }

  #askPage(log: string, page: number): void {
    const key = `${log}/${page}`;
    if (this.#asked.has(key)) return;
    this.#asked.add(key);
    const family = this.family.peek();
    const generation = this.#generation.get(log);
    this.source.steps(log, page * PAGE, PAGE).get().then(
      (found) => {
        this.#asked.delete(key);
        if (this.#generation.get(log) === generation)
          for (const step of found.steps) this.#fresh.add(step);
        if (this.family.peek()?.root !== family?.root) return;
        const words = this.#words.get(log) ?? [];
        const isNew = found.steps.some((step, index) => words[found.first + index] !== step);
        found.steps.forEach((step, index) => (words[found.first + index] = step));
        this.#words.set(log, words);
        // The outline may have been read after the words: they are asked for again, and not at once.
        if (found.total < (this.outlines.get(log)?.total ?? 0)) {
          this.source.forget(log, 0);
          setTimeout(() => (this.version.value += 1), REFRESH_MS);
        }
        // Who reads words asks for those that are missing: an answer without any must not wake it.
        if (isNew) this.version.value += 1;
      },
      () => setTimeout(() => this.#asked.delete(key), 1000),
    );
  }

  #makeOld(log: string, from: number): void {
    this.#generation.set(log, (this.#generation.get(log) ?? 0) + 1);
    for (const step of this.#words.get(log)?.slice(from) ?? []) if (step) this.#fresh.delete(step);
  }

  // ── news ───────────────────────────────────────────────────────────────────────────────────

  #hear(news: readonly News[]): void {
    const rows = this.rows.peek();
    let isOurs = false;
    // Answers are looked through once per log: there may be a thousand news in a second.
    const firsts = new Map<string, number>();
    for (const { log, seq } of news) firsts.set(log, Math.min(seq, firsts.get(log) ?? seq));
    for (const [log, seq] of firsts) this.source.forget(log, seq);
    for (const { log, seq, kind, session } of news) {
      const isKnown = rows?.branchOf.has(log) ?? false;
      if (isKnown) this.#changed.set(log, Math.max(seq, this.#changed.get(log) ?? seq));
      // An answer, a pause or its end may stand in an inbox: the session's status is another then.
      const isForUs = session !== null && (rows?.branchOf.has(session) ?? false);
      const isPlain = isKnown && isPlainKind(kind);
      if (!isPlain && (isKnown || isForUs || kind === "ForkedFrom")) this.#needsFamily = true;
      isOurs ||= isKnown || isForUs || kind === "ForkedFrom";
    }
    if (isOurs) this.#refreshSoon();
  }

  #refreshSoon(): void {
    if (this.#isRefreshing) return;
    const rest = Math.min(REFRESH_MAX_MS, Math.max(REFRESH_MS, this.#refreshTook));
    this.#setRefresh(this.#refreshEnd + rest - performance.now());
  }

  #setRefresh(wait: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#refresh(), Math.max(0, wait));
  }

  async #refresh(): Promise<void> {
    const begun = performance.now();
    let isLost = false;
    const family = this.family.peek();
    const changed = new Map(this.#changed);
    const isWhole = this.#needsFamily || begun - this.#familyAt > FAMILY_MS;
    this.#changed.clear();
    this.#needsFamily = false;
    this.#isRefreshing = true;
    try {
      if (!family) return;
      const asked = isWhole ? this.#askFamily(family) : Promise.resolve(null);
      const pieces = await Promise.all(
        [...changed.keys()].map((log) => this.source.outline(log, this.#firstChanged(log, isWhole)).get()),
      );
      const ends = new Map<string, LogEnd>();
      for (const piece of pieces) {
        const tip = Math.max(changed.get(piece.log)!, ...piece.seqs.slice(-1));
        ends.set(piece.log, { tip, stepCount: piece.total });
      }
      const fresh = (await asked) ?? grownFamily(family, ends) ?? (await this.#askFamily(family));
      const known = new Set(family.branches.map((branch) => branch.log));
      const added = fresh.branches.filter((each) => !known.has(each.log)).map((each) => each.log);
      if (this.family.peek()?.root !== family.root) return;
      for (const piece of pieces) {
        this.#outlineOf(piece.log).take(piece);
        this.#makeOld(piece.log, piece.from_index);
      }
      await this.#loadOutlines(added);
      batch(() => {
        this.family.value = fresh;
        this.outlineVersion.value += 1;
        this.version.value += 1;
        this.#follow();
      });
      this.#isFamilyOld = !isWhole;
    } catch {
      // The server is away: the feed says so. What was asked for is asked for again.
      isLost = this.#needsFamily = true;
      for (const [log, seq] of changed) this.#changed.set(log, Math.max(seq, this.#changed.get(log) ?? seq));
    } finally {
      const now = performance.now();
      this.#isRefreshing = false;
      this.#refreshTook = isLost ? REFRESH_MAX_MS : now - begun;
      this.#refreshEnd = now;
      if (this.#changed.size || this.#needsFamily) this.#refreshSoon();
      else if (this.#isFamilyOld) this.#setRefresh(this.#familyAt + FAMILY_MS - now + 1);
    }
  }

  async #askFamily(family: FamilyShape): Promise<FamilyShape> {
    const begun = performance.now();
    const fresh = await this.source.family(family.root).get();
    this.#familyAt = begun;
    return fresh;
  }

  /** Return the step from which on an outline is asked for: the first that may still change. A step
   * that is open for long is looked at now and then: all after it would be sent each time.
   */
  #firstChanged(log: string, isWhole: boolean): number {
    const outline = this.outlines.get(log);
    if (!outline) return 0;
    const first = outline.firstOpen();
    return isWhole || outline.total - first < OPEN_MAX ? first : outline.firstOpen(outline.total - OPEN_MAX);
  }
}
