/** The source that asks a server. */

import type { ActShape, Json, TrackShape } from "../shapes";
import type { Source } from "../source";
import { Answer, AnswerCache, Failure } from "./answer";
import { joinTracks } from "./track";

const TRACKS_MAX = 4;

function path(...parts: readonly (string | number)[]): string {
  return `/api/${parts.map((part) => encodeURIComponent(part).replace(/%40/g, "@")).join("/")}`;
}

function query(pairs: Record<string, string | number | undefined>): string {
  const given = Object.entries(pairs).filter(([, value]) => value !== undefined && value !== "");
  return given.length
    ? `?${given.map(([key, value]) => `${key}=${encodeURIComponent(value!)}`).join("&")}`
    : "";
}

async function readFailure(response: Response): Promise<Failure> {
  let said: Record<string, unknown> = {};
  try {
    said = (await response.json()) as Record<string, unknown>;
  } catch {
    // not JSON: the status has to do
  }
  const text = (key: string, other: string) => (typeof said[key] === "string" ? said[key] : other);
  return new Failure(
    text("error", `HTTP ${response.status}`),
    text("message", response.statusText || "The server refused."),
    text("next", ""),
    response.status,
    said,
  );
}

async function ask(address: string, options: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(address, { credentials: "same-origin", ...options });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Failure("ServerAway", "The server does not answer.", "Start it with: plait serve");
  }
  if (!response.ok) throw await readFailure(response);
  return response;
}

/** Exchange the token of the address for a cookie, and take it out of the address. */
export async function sayHello(): Promise<void> {
  const found = /^#t=([\w-]+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", location.pathname + location.search);
  await ask("/api/hello", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token: found[1] }),
  });
}

export class HttpSource implements Source {
  readonly isFile = false;
  readonly copy = null;
  #cache = new AnswerCache();
  /** The pieces of tracks that grow: only what is new of them is asked for. */
  #tracks = new Map<string, TrackShape>();

  #get<T>(address: string): Answer<T> {
    return this.#cache.get<T>(address, (signal) => this.#load<T>(address, signal));
  }

  async #load<T>(address: string, signal: AbortSignal): Promise<T> {
    const response = await ask(address, { signal });
    return (await response.json()) as T;
  }

  store: Source["store"] = () => this.#get(path("store"));
  sessions: Source["sessions"] = (filter, before) =>
    this.#get(path("sessions") + query({ q: filter, before }));
  search: Source["search"] = (words) => this.#get(path("search") + query({ q: words }));
  inbox: Source["inbox"] = (session, isAll) =>
    this.#get(path("inbox") + query({ session, all: isAll ? "true" : "" }));
  session: Source["session"] = (place) => this.#get(path("sessions", place));
  family: Source["family"] = (session) => this.#get(path("sessions", session, "family"));
  outlines: Source["outlines"] = (logs) =>
    this.#get(`${path("outlines")}?logs=${logs.map(encodeURIComponent).join(",")}`);
  outline: Source["outline"] = (log, from) => this.#get(path("logs", log, "outline") + query({ from }));
  steps: Source["steps"] = (log, first, count) =>
    this.#get(path("logs", log, "steps") + query({ first, count }));
  detail: Source["detail"] = (log, seq) => this.#get(path("logs", log, "steps", seq));
  track: Source["track"] = (log, seq) => {
    const address = path("logs", log, "track") + query({ seq });
    return this.#cache.get(address, async (abort) => {
      const known = this.#tracks.get(address);
      const piece = await this.#load<TrackShape>(address + (known ? `&after=${known.last}` : ""), abort);
      const whole = known ? joinTracks(known, piece) : piece;
      this.#tracks.delete(address);
      this.#tracks.set(address, whole);
      if (this.#tracks.size > TRACKS_MAX) this.#tracks.delete(this.#tracks.keys().next().value!);
      return whole;
    });
  };
  events: Source["events"] = (log, first, count) =>
    this.#get(path("logs", log, "events") + query({ first, count }));
  folder: Source["folder"] = (tree, folder) => this.#get(path("trees", tree) + query({ folder }));
  file: Source["file"] = (tree, file, first, count) =>
    this.#get(path("trees", tree, "file") + query({ path: file, first, count }));
  diff: Source["diff"] = (left, right, file) =>
    this.#get(path("trees", left, "diff", right) + query({ path: file }));
  blame: Source["blame"] = (place, file) =>
    this.#get(path("sessions", place, "blame") + query({ path: file }));
  prompt: Source["prompt"] = (place) => this.#get(path("sessions", place, "prompt"));
  why: Source["why"] = (place, about) => this.#get(path("sessions", place, "why") + query({ about }));
  influence: Source["influence"] = (place, about) =>
    this.#get(path("sessions", place, "influence") + query({ about }));
  compare: Source["compare"] = (left, right) => this.#get(path("sessions", left, "compare", right));
  costs: Source["costs"] = (session, by) => this.#get(path("costs") + query({ session, by }));
  flame: Source["flame"] = (session) => this.#get(path("sessions", session, "flame"));
  memory: Source["memory"] = (session) => this.#get(path("sessions", session, "memory"));
  verify: Source["verify"] = (session) => this.#get(path("sessions", session, "verify"));
  runs: Source["runs"] = () => this.#get(path("runs"));

  blobAddress(digest: string): string {
    return path("blobs", digest);
  }

  act(place: string, verb: string, body: Json): Promise<ActShape> {
    return this.post<ActShape>(path("sessions", place, "acts", verb), body);
  }

  async post<T>(address: string, body: Json): Promise<T> {
    const response = await ask(address, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body ?? {}),
    });
    return (await response.json()) as T;
  }

  forget(log: string, seq: number): void {
    const own = path("logs", log, "");
    const place = /^\/api\/sessions\/[^/?]*@\d+[/?]/;
    this.#cache.drop((key, value) => {
      if (key === "/api/store") return false; // what is served, and who is: no event says otherwise
      if (key.startsWith("/api/trees/") || key.startsWith("/api/blobs/")) return false;
      if (key.startsWith(own)) return !isSettledBefore(value, seq);
      if (key.startsWith("/api/logs/")) return false;
      return !place.test(key);
    });
  }
}

/** Tell whether an answer about a log cannot change by events from `seq` on. */
function isSettledBefore(value: unknown, seq: number): boolean {
  const about = value as { last?: number; step?: { state: string }; steps?: { state: string }[]; total?: number } | undefined;
  if (!about) return false;
  if (about.step) return !["open", "waiting", "unknown"].includes(about.step.state);
  if (about.last !== undefined) return about.last < seq - 1;
  return false;
}
