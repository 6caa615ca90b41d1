/** The bar: where the page is, how the session stands, what one can do from here. */

import { allTokens, shortNumber, spentText } from "../base/format";
import { usePage } from "../base/page";
import { go, hrefOf, route, type Route } from "../base/router";
import { themeChoice, type ThemeChoice } from "../base/theme";
import { ActMenu } from "../screens/acts";
import { waitingCount } from "../screens/live";
import { Icon, type IconName } from "./icons";
import { isHelpOpen } from "./keys_help";
import { StatusWord } from "./status";
import { Line } from "./text";

const PLACES: readonly [IconName, string, Route][] = [
  ["home", "Sessions", { screen: "home", filter: "" }],
  ["inbox", "Inbox", { screen: "inbox", session: "" }],
  ["coin", "Cost", { screen: "cost", session: "" }],
];

const NEXT_THEME: Readonly<Record<ThemeChoice, ThemeChoice>> = { system: "light", light: "dark", dark: "system" };
const THEME_ICONS: Readonly<Record<ThemeChoice, IconName>> = { system: "system", light: "sun", dark: "moon" };

export function Bar() {
  return (
    <header class="bar">
      <a class="bar-name" href={hrefOf({ screen: "home", filter: "" })} aria-label="Plait, all sessions">
        <svg viewBox="0 0 16 16" class="bar-sign" aria-hidden="true">
          <path d="M4.5 1.5v2.2c0 3 7 3.6 7 6.6v4.2" />
          <path d="M11.5 1.5v2.2c0 3-7 3.6-7 6.6v4.2" />
        </svg>
        <span>plait</span>
      </a>
      <SessionTitle />
      <nav class="bar-places" aria-label="Places">
        {PLACES.map(([icon, name, target]) => (
          <a
            key={name}
            class="button plain"
            href={hrefOf(target)}
            aria-current={route.value.screen === target.screen ? "page" : undefined}
            title={name}
          >
            <Icon name={icon} />
            <span class="unseen">{name}</span>
            {target.screen === "inbox" && !!waitingCount.value && <span class="bar-count">{waitingCount.value}</span>}
          </a>
        ))}
        <ThemeButton />
        <button type="button" class="button plain square" aria-label="Keys" title="Keys (?)" onClick={() => (isHelpOpen.value = true)}>
          <Icon name="keys" />
        </button>
      </nav>
    </header>
  );
}

function ThemeButton() {
  const choice = themeChoice.value;
  const next = NEXT_THEME[choice];
  return (
    <button
      type="button"
      class="button plain square"
      aria-label={`Theme: ${choice}. Change to ${next}`}
      title={`Theme: ${choice}`}
      onClick={() => (themeChoice.value = next)}
    >
      <Icon name={THEME_ICONS[choice]} />
    </button>
  );
}

function SessionTitle() {
  const { model } = usePage();
  const family = model.family.value;
  if (route.value.screen !== "session" || !family) return <div class="bar-session" />;
  const root = family.branches[0]!;
  const at = model.branch.value;
  void model.version.value;
  const named = family.title || (root.name === root.short ? "" : root.name);
  return (
    <div class="bar-session">
      <h1 class="bar-title cut">
        <Line text={named || model.stepAt(0)?.says || root.short} />
      </h1>
      <StatusWord of={root} />
      <span class="bar-figures faint cut">{`${shortNumber(allTokens(family.spent))} tokens · ${spentText(family.spent, family.spent_unmerged)}`}</span>
      <span class="bar-acts">
        {family.branches.length > 1 && (
          <button type="button" class="button" onClick={() => compareFrom(at?.short ?? root.short, root.short)}>
            <Icon name="compare" />
            <span class="bar-word">Compare</span> <kbd class="key" aria-hidden="true">c</kbd>
          </button>
        )}
        <button
          type="button"
          class="button"
          onClick={() => go({ screen: "whatif", session: at?.short ?? root.short, seq: model.cursor.peek()?.seq ?? null })}
        >
          <Icon name="whatif" />
          <span class="bar-word">What if…</span> <kbd class="key" aria-hidden="true">f</kbd>
        </button>
        <ActMenu />
      </span>
    </div>
  );
}

export function compareFrom(here: string, root: string): void {
  go({ screen: "compare", left: root, right: here });
}
