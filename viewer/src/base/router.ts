/** The address of the page: one place of a session, and the panel that shows it. */

import { signal } from "@preact/signals";
import { MEDIA_TYPE } from "../file/pieces";

export const TABS = ["step", "files", "prompt", "why", "influence", "raw", "state"] as const;
export type Tab = (typeof TABS)[number];

export interface SessionRoute {
  readonly screen: "session";
  /** A revision: an id, a short id, a label, `@`. */
  readonly session: string;
  /** null: the end of the session; the page follows it. */
  readonly seq: number | null;
  readonly tab: Tab;
  /** Of the tab Files. */
  readonly path: string;
  readonly line: number | null;
  /** Of the tab Files: compared with `before`, `start`, or a branch. "": not compared. */
  readonly against: string;
  /** Of the tabs Why and Influence: `path:line`, a key, a text. "": the event of the place. */
  readonly about: string;
}

export type Route =
  | SessionRoute
  | { readonly screen: "home"; readonly filter: string }
  | { readonly screen: "inbox"; readonly session: string; readonly ask?: string }
  | { readonly screen: "cost"; readonly session: string }
  | { readonly screen: "memory"; readonly session: string }
  | { readonly screen: "verify"; readonly session: string }
  | { readonly screen: "whatif"; readonly session: string; readonly seq: number | null }
  | { readonly screen: "compare"; readonly left: string; readonly right: string }
  | { readonly screen: "lost"; readonly address: string };

export function sessionRoute(
  session: string,
  seq: number | null = null,
  rest: Partial<SessionRoute> = {},
): SessionRoute {
  return { screen: "session", session, seq, tab: "step", path: "", line: null, against: "", about: "", ...rest };
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** Return an address segment. `@`, `:` and `=` may stand in a path, and read better. */
function encode(segment: string): string {
  return encodeURIComponent(segment).replace(/%40/g, "@").replace(/%3A/g, ":").replace(/%3D/g, "=");
}

/** Split `S@42` into its session and its seq. */
export function splitPlace(text: string): [session: string, seq: number | null] {
  const found = /^(.+)@(\d{1,15})$/.exec(text);
  return found ? [found[1]!, Number(found[2])] : [text, null];
}

export function placeText(session: string, seq: number | null): string {
  return seq === null ? session : `${session}@${seq}`;
}

export function parseAddress(address: string): Route {
  const url = new URL(address, "http://page.invalid");
  const parts = url.pathname.split("/").slice(1).map(decode);
  const [head = "", second = "", ...rest] = parts;
  switch (head) {
    case "":
      return { screen: "home", filter: url.searchParams.get("q") ?? "" };
    case "inbox": {
      const ask = url.searchParams.get("ask");
      return { screen: head, session: second, ...(ask ? { ask } : {}) };
    }
    case "cost":
    case "memory":
      return { screen: head, session: second };
    case "verify":
      return second ? { screen: "verify", session: second } : { screen: "lost", address };
    case "whatif": {
      const [session, seq] = splitPlace(second);
      return session ? { screen: "whatif", session, seq } : { screen: "lost", address };
    }
    case "compare": {
      const [left, right] = second.split("..");
      return left && right ? { screen: "compare", left, right } : { screen: "lost", address };
    }
    case "s":
      return second ? parseSession(second, rest, url) : { screen: "lost", address };
    default:
      return { screen: "lost", address };
  }
}

function parseSession(place: string, rest: readonly string[], url: URL): Route {
  const [session, seq] = splitPlace(place);
  const [tab = "step", ...path] = rest;
  if (!(TABS as readonly string[]).includes(tab)) return { screen: "lost", address: url.pathname };
  const line = /^#L(\d{1,9})/.exec(url.hash);
  return sessionRoute(session, seq, {
    tab: tab as Tab,
    path: path.join("/"),
    line: line ? Number(line[1]) : null,
    against: url.searchParams.get("against") ?? "",
    about: url.searchParams.get("about") ?? "",
  });
}

function query(pairs: Record<string, string>): string {
  const given = Object.entries(pairs).filter(([, value]) => value !== "");
  return given.length ? `?${given.map(([key, value]) => `${key}=${encode(value)}`).join("&")}` : "";
}

export function formatAddress(route: Route): string {
  switch (route.screen) {
    case "home":
      return `/${query({ q: route.filter })}`;
    case "inbox":
      return `/inbox${route.session ? `/${encode(route.session)}` : ""}${query({ ask: route.ask ?? "" })}`;
    case "cost":
    case "memory":
      return `/${route.screen}${route.session ? `/${encode(route.session)}` : ""}`;
    case "verify":
      return `/verify/${encode(route.session)}`;
    case "whatif":
      return `/whatif/${encode(placeText(route.session, route.seq))}`;
    case "compare":
      return `/compare/${encode(`${route.left}..${route.right}`)}`;
    case "lost":
      return route.address;
    case "session": {
      const place = `/s/${encode(placeText(route.session, route.seq))}`;
      if (route.tab === "files") {
        const path = route.path ? `/${route.path.split("/").map(encode).join("/")}` : "";
        const line = route.line === null ? "" : `#L${route.line}`;
        return `${place}/files${path}${query({ against: route.against })}${line}`;
      }
      const tab = route.tab === "step" ? "" : `/${route.tab}`;
      const about = route.tab === "why" || route.tab === "influence" ? route.about : "";
      return `${place}${tab}${query({ about })}`;
    }
  }
}

// ── the address of this window ───────────────────────────────────────────────────────────────

/** A page in one file has no server: its address stands behind the #. */
const isFile = document.querySelector(`script[type="${MEDIA_TYPE}"]`) !== null;

function currentAddress(): string {
  if (isFile) return location.hash.startsWith("#/") ? location.hash.slice(1) : "/";
  return location.pathname + location.search + location.hash;
}

export const route = signal<Route>(parseAddress(currentAddress()));

export function hrefOf(target: Route): string {
  return isFile ? `#${formatAddress(target)}` : formatAddress(target);
}

export type Move = "push" | "replace";

export function go(target: Route, move: Move = "push"): void {
  const href = hrefOf(target);
  route.value = target;
  if (move === "replace") history.replaceState(null, "", href);
  else if (formatAddress(target) !== currentAddress()) history.pushState(null, "", href);
}

/** Write the address of a route without telling the page: what it shows is there already. */
export function writeAddress(target: Route, move: Move): void {
  if (move === "push") history.pushState(null, "", hrefOf(target));
  else history.replaceState(null, "", hrefOf(target));
}

/** Follow Back, Forward, and plain clicks on links of the page. Call it once. */
export function listenToAddress(): void {
  const read = () => {
    route.value = parseAddress(currentAddress());
  };
  addEventListener("popstate", read);
  if (isFile) addEventListener("hashchange", read);
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest?.("a[href]");
    if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download")) return;
    if (!isFile && link.origin !== location.origin) return;
    const href = link.getAttribute("href") ?? "";
    if (href.startsWith("/api/")) return;
    event.preventDefault();
    go(parseAddress(isFile ? href.replace(/^#/, "") : href));
  });
}
