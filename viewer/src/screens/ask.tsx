/** One ask: everything that a person decides by. */

import type { ComponentChildren } from "preact";
import { nameOf } from "../base/asks";
import { agoText, gapText, timeText } from "../base/format";
import { hrefOf, sessionRoute } from "../base/router";
import { plainText } from "../base/text";
import { Icon, type IconName } from "../parts/icons";
import { Line, Pieces, Text } from "../parts/text";
import type { AskShape, Json, WaitKind } from "../shapes";
import { FileDiffView } from "../workbench/diff";
import { AskActs } from "./ask_acts";
import { parsePatch } from "./patch";

export { nameOf };

export const ASK_ICONS: Readonly<Record<WaitKind, IconName>> = {
  approval: "hand", question: "question", unknown: "warn", timer: "clock", verdict: "flag",
};

export const ASK_WORDS: Readonly<Record<WaitKind, string>> = {
  approval: "asks to", question: "asks", unknown: "outcome unknown", timer: "waits", verdict: "waits for a verdict",
};

/** What is asked, as one line for lists. */
export function askLine(ask: AskShape): string {
  switch (ask.kind) {
    case "approval":
      return `${ask.tool ?? "an effect"} ${shortArguments(ask.arguments)}`;
    case "question":
      return ask.question;
    case "unknown":
      return `Did ${ask.tool ?? "it"} happen? ${shortArguments(ask.arguments)}`;
    case "verdict":
      return `${ask.signal || "a verdict"} ${ask.by ? `by ${nameOf(ask.by)}` : ""}`;
    case "timer":
      return ask.signal ? `for the signal ${ask.signal}` : "for a time";
  }
}

/** Arguments that say by themselves what a call is about. */
const MAIN = ["command", "path", "url", "query"];

function shortArguments(value: Json): string {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value === null ? "" : JSON.stringify(value);
  const main = MAIN.filter((key) => typeof value[key] === "string");
  const rest = Object.keys(value).filter((key) => !main.includes(key));
  return [
    ...main.map((key) => String(value[key])),
    ...rest.map((key) => `${key}=${typeof value[key] === "string" ? value[key] : JSON.stringify(value[key])}`),
  ].join(" ");
}

export function expiryText(ask: AskShape, now = Date.now()): string {
  if (ask.is_late) return "expired";
  const end = ask.expires ?? ask.until;
  if (end === null) return "";
  const ms = end / 1000 - now;
  return ms <= 0 ? "expired" : `expires in ${gapText(ms)}`;
}

function shownField(ask: AskShape, name: string): string {
  const shown = ask.shown;
  if (shown === null || typeof shown !== "object" || Array.isArray(shown)) return "";
  const value = shown[name];
  return typeof value === "string" ? value : "";
}

const FOREIGN = ["web", "tool", "mcp", "file", "external"];

export function AskView({ ask }: { ask: AskShape }) {
  const files = ask.patch ? parsePatch(ask.patch) : [];
  const why = ask.reason || "";
  const rule = shownField(ask, "rule") || shownField(ask, "why");
  const place = sessionRoute(ask.short, ask.seq);
  const pairs: [string, ComponentChildren][] = [
    ["Who asks", <Pieces text={nameOf(ask.actor)} />],
    ["For", <Pieces text={ask.behalf ? nameOf(ask.behalf) : "nobody in particular"} />],
  ];
  if (why) pairs.push(["Why", <Text text={why} lines={12} />]);
  if (ask.why) pairs.push([ask.kind === "unknown" ? "What happened" : "Why", <Text text={ask.why} lines={12} />]);
  if (rule) pairs.push(["Why it asks first", <Pieces text={rule} />]);
  if (ask.kind === "verdict" && ask.by) pairs.push(["May be given by", <Pieces text={nameOf(ask.by)} />]);
  pairs.push(["It had read", <Origins origins={ask.origins} />]);
  if (ask.effect) pairs.push(["Effect class", ask.effect.replaceAll("_", " ")]);
  if (ask.version) pairs.push(["Version", <span class="mono"><Pieces text={ask.version} /></span>]);
  return (
    <article class="ask" aria-label={plainText(askLine(ask))}>
      <header class="ask-head">
        <Icon name={ASK_ICONS[ask.kind]} class={ask.kind === "unknown" ? "bad" : "warn"} />
        <div>
          <h2><AskTitle ask={ask} /></h2>
          <p class="detail-figures">
            <a class="link" href={hrefOf(place)}><Line text={ask.name} /> <span class="mono">@{ask.seq}</span></a>
            <span title={timeText(ask.since)}>{agoText(ask.since)}</span>
            {expiryText(ask) && <span class={ask.is_late ? "bad" : ""} title={ask.expires ? timeText(ask.expires) : undefined}>{expiryText(ask)}</span>}
          </p>
        </div>
      </header>
      {(ask.kind === "approval" || ask.kind === "unknown") && (
        <section class="block">
          <h3 class="label">{ask.kind === "approval" ? "The call, exactly" : "The call that was made"}</h3>
          <Call ask={ask} />
        </section>
      )}
      {files.length > 0 && (
        <section class="block">
          <h3 class="label">What it would change</h3>
          {files.map((file) => <FileDiffView key={file.path} file={file} place={{ log: ask.session, seq: ask.seq }} />)}
        </section>
      )}
      {ask.patch && files.length === 0 && (
        <section class="block"><h3 class="label">What it would change</h3><Text text={ask.patch} isCode lines={40} /></section>
      )}
      {ask.lapsed_memories.length > 0 && (
        <section class="block">
          <h3 class="label warn">It relied on memories that do not hold any more</h3>
          <ul>
            {ask.lapsed_memories.map((memory) => (
              <li key={memory.id}>“<Pieces text={memory.text} />” <span class="warn"><Pieces text={memory.change} /></span></li>
            ))}
          </ul>
        </section>
      )}
      {ask.failed && (
        <section class="block"><h3 class="label bad">A verdict was given, and failed</h3><p class="faint">{`by ${nameOf(ask.failed.actor)}, ${agoText(ask.failed.time)}`}</p></section>
      )}
      <section class="block">
        <dl class="pairs">{pairs.map(([name, value], index) => [<dt key={`${index}-name`}>{name}</dt>, <dd key={index}>{value}</dd>])}</dl>
      </section>
      <AskActs ask={ask} />
    </article>
  );
}

function AskTitle({ ask }: { ask: AskShape }) {
  switch (ask.kind) {
    case "approval":
      return <><Pieces text={nameOf(ask.actor)} /> wants to call <b class="mono"><Pieces text={ask.tool ?? "an effect"} /></b></>;
    case "question":
      return <Pieces text={ask.question} />;
    case "unknown":
      return <>Did <b class="mono"><Pieces text={ask.tool ?? "this call"} /></b> happen?</>;
    case "verdict":
      return <>The gate <b><Pieces text={ask.signal} /></b> waits for a verdict</>;
    case "timer":
      return <>Waits {askLine(ask)}</>;
  }
}

/** The call as JSON, whole, with marks for characters that are not seen. */
function Call({ ask }: { ask: AskShape }) {
  return (
    <div class="call">
      <span class="mono call-name"><Pieces text={ask.tool ?? ""} /></span>
      <Text text={JSON.stringify(ask.arguments, null, 2)} isCode lines={200} />
    </div>
  );
}

function Origins({ origins }: { origins: readonly string[] }) {
  if (origins.length === 0) return <>nothing</>;
  return (
    <span class="origins">
      {origins.map((each) => {
        const isForeign = FOREIGN.some((name) => each === name || each.startsWith(`${name}:`));
        return (
          <span key={each} class={isForeign ? "origin warn" : "origin"} title={isForeign ? "others write this: it may try to persuade" : undefined}>
            {isForeign && <Icon name="warn" />}
            <Pieces text={each} />
          </span>
        );
      })}
    </span>
  );
}
