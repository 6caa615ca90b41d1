/** Figures and times for people. */

import type { SpentShape } from "../shapes";

const grouped = new Intl.NumberFormat("en-US");
const THIN = "\u202f";

export function countText(count: number, noun: string, plural = `${noun}s`): string {
  return `${grouped.format(count)} ${count === 1 ? noun : plural}`;
}

export function numberText(value: number): string {
  return grouped.format(value);
}

/** 950, 12.4k, 1.2M */
export function shortNumber(value: number): string {
  if (value < 1000) return String(value);
  if (value < 10_000) return `${(value / 1000).toFixed(1)}k`;
  if (value < 1_000_000) return `${Math.round(value / 1000)}k`;
  return `${(value / 1_000_000).toFixed(value < 10_000_000 ? 1 : 0)}M`;
}

export function tokensText(tokens: number): string {
  return `${shortNumber(tokens)}${THIN}tok`;
}

export function dollarsText(dollars: number | null): string {
  if (dollars === null) return "price unknown";
  if (dollars === 0) return "$0";
  if (dollars < 0.01) return `$${dollars.toFixed(4)}`;
  return `$${dollars.toFixed(2)}`;
}

export function tookText(us: number): string {
  const ms = us / 1000;
  if (ms < 1) return `<1${THIN}ms`;
  if (ms < 1000) return `${Math.round(ms)}${THIN}ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)}${THIN}s`;
  return gapText(ms);
}

/** 2 min, 3 h 20 min, 5 d */
export function gapText(ms: number): string {
  const minutes = Math.round(ms / 60_000);
  if (ms < 60_000) return `${Math.max(1, Math.round(ms / 1000))}${THIN}s`;
  if (minutes < 60) return `${minutes}${THIN}min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours}${THIN}h ${minutes % 60}${THIN}min` : `${hours}${THIN}h`;
  const days = Math.floor(hours / 24);
  return hours % 24 && days < 10 ? `${days}${THIN}d ${hours % 24}${THIN}h` : `${days}${THIN}d`;
}

export function bytesText(size: number): string {
  if (size < 1000) return `${size}${THIN}B`;
  if (size < 1_000_000) return `${(size / 1000).toFixed(size < 10_000 ? 1 : 0)}${THIN}KB`;
  if (size < 1e9) return `${(size / 1e6).toFixed(size < 1e7 ? 1 : 0)}${THIN}MB`;
  return `${(size / 1e9).toFixed(1)}${THIN}GB`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

/** The time of day, with the day if it is not today. */
export function timeText(micros: number, now = Date.now()): string {
  const date = new Date(micros / 1000);
  const time = clock.format(date);
  return day.format(date) === day.format(now) ? time : `${day.format(date)}, ${time}`;
}

export function agoText(micros: number, now = Date.now()): string {
  const ms = now - micros / 1000;
  return ms < 5000 ? "now" : `${gapText(ms)} ago`;
}

export function allTokens(spent: SpentShape): number {
  return spent.input_tokens + spent.output_tokens;
}

/** Dollars as they are known: "$0.12", "$0.12 and 3 without a price", "no price". */
export function costText(spent: SpentShape): string {
  const unpriced = spent.unpriced;
  if (spent.cost_usd === null || (unpriced > 0 && spent.cost_usd === 0))
    return unpriced > 0 ? `${countText(unpriced, "reply", "replies")} without a price` : "price unknown";
  return unpriced > 0 ? `${dollarsText(spent.cost_usd)}, ${unpriced} without a price` : dollarsText(spent.cost_usd);
}

/** Both numbers of a session: "$0.42, $0.10 of it in branches that were not merged". */
export function spentText(spent: SpentShape, unmerged: SpentShape | null): string {
  const lost = unmergedText(unmerged);
  return lost ? `${costText(spent)}, ${lost}` : costText(spent);
}

/** "$0.10 of it in branches that were not merged"; "": nothing was spent in such. */
export function unmergedText(unmerged: SpentShape | null): string {
  return unmerged && unmerged.model_calls > 0 ? `${costText(unmerged)} of it in branches that were not merged` : "";
}

export function baseName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}
