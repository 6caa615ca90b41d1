/** What is left of a budget, along the log of a session. */

import { useAnswer } from "../base/answer";
import { dollarsText, numberText } from "../base/format";
import { usePage } from "../base/page";
import { hrefOf, sessionRoute } from "../base/router";
import { stateAt } from "../base/track";
import type { Json, TrackShape } from "../shapes";

const WIDTH = 600;
const HEIGHT = 56;

type Table = { readonly [key: string]: Json };

function tableOf(value: Json | undefined): Table {
  return value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
}

export interface BurnLine {
  readonly name: string;
  readonly limit: number;
  /** Pairs of seq and what is left. */
  readonly points: readonly (readonly [number, number])[];
  readonly left: number;
}

/** Return a line for each limit of the budget that holds at the end. */
export function burnLines(track: TrackShape): BurnLine[] {
  const end = stateAt(track, track.last);
  const limits = tableOf(end.budget);
  return Object.entries(limits).flatMap(([name, limit]) => {
    if (typeof limit !== "number" || limit <= 0) return [];
    const points: [number, number][] = [];
    const put = (seq: number, left: Json | undefined) => {
      const value = tableOf(left)[name] ?? tableOf(left)[name.replace(/_max$/, "")];
      if (typeof value === "number") points.push([seq, value]);
    };
    put(track.start.seq, track.start.budget_left);
    for (const change of track.changes) if (change.budget_left !== undefined) put(change.seq, change.budget_left);
    if (points.length === 0) return [];
    const left = points.at(-1)![1];
    points.push([track.last, left]);
    return [{ name, limit, points, left }];
  });
}

const LIMIT_WORDS: Readonly<Record<string, string>> = { tokens_max: "tokens", cost_usd_max: "dollars", steps_max: "steps", time_s_max: "seconds" };

function amount(name: string, value: number): string {
  return name.startsWith("cost") ? dollarsText(Math.max(0, value)) : numberText(Math.round(value));
}

export function Burndown({ session }: { session: string }) {
  const { source } = usePage();
  const at = useAnswer(source.session(session)).value;
  const shown = useAnswer(at && at.budget ? source.track(at.id, at.place) : null);
  const lines = shown.value ? burnLines(shown.value) : [];
  if (!at) return null;
  if (!at.budget) return <p class="faint block">This session has no budget: nothing limits what it spends.</p>;
  if (lines.length === 0) return null;
  return (
    <section class="block" aria-label="Budget">
      <h2 class="label">Budget: what is left, event by event</h2>
      <div class="burns">
        {lines.map((line) => <Burn key={line.name} line={line} log={at.id} />)}
      </div>
    </section>
  );
}

function Burn({ line, log }: { line: BurnLine; log: string }) {
  const first = line.points[0]![0];
  const last = Math.max(first + 1, line.points.at(-1)![0]);
  const x = (seq: number) => ((seq - first) / (last - first)) * WIDTH;
  const y = (left: number) => HEIGHT - (Math.max(0, left) / line.limit) * HEIGHT;
  let path = "";
  line.points.forEach(([seq, left], index) => {
    path += index === 0 ? `M${x(seq)} ${y(left)}` : `H${x(seq)}V${y(left)}`;
  });
  const words = LIMIT_WORDS[line.name] ?? line.name.replaceAll("_", " ");
  const share = Math.round((100 * Math.max(0, line.left)) / line.limit);
  const falls = line.points.filter(([, left], index) => index > 0 && left < line.points[index - 1]![1]);
  const steepest = falls.reduce<readonly [number, number] | null>((most, point) => {
    const fall = line.points[line.points.indexOf(point) - 1]![1] - point[1];
    return !most || fall > most[1] ? [point[0], fall] : most;
  }, null);
  return (
    <figure class="burn">
      <figcaption>
        <b>{words}</b> <span class={share < 10 ? "warn" : ""}>{`${amount(line.name, line.left)} of ${amount(line.name, line.limit)} left, ${share}%`}</span>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT + 2}`} preserveAspectRatio="none" aria-hidden="true">
        <path class="burn-ground" d={`${path}V${HEIGHT}H0Z`} />
        <path class="burn-line" d={path} />
      </svg>
      {steepest && (
        <p class="faint">
          {`most at once: ${amount(line.name, steepest[1])} at `}
          <a class="link mono" href={hrefOf(sessionRoute(log, steepest[0]))}>{`@${steepest[0]}`}</a>
        </p>
      )}
    </figure>
  );
}
