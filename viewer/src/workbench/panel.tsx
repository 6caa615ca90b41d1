/** The middle of the workbench: one place, seen in several ways. */

import { usePage } from "../base/page";
import { go, hrefOf, route, type SessionRoute, type Tab } from "../base/router";
import { FilesPanel } from "./files";
import { PromptPanel } from "./prompt";
import { RawPanel } from "./raw";
import { StateHere } from "./state";
import { StepPanel } from "./step";
import { WhyPanel } from "./why";
import { pane } from "./workbench";

const TAB_WORDS: readonly [Tab, string, string][] = [
  ["step", "Step", "Enter"],
  ["files", "Files", "b"],
  ["prompt", "Prompt", "p"],
  ["why", "Why", "w"],
  ["influence", "Influence", "i"],
  ["raw", "Raw", "r"],
  ["state", "State", "s"],
];

export function Panel() {
  const { model } = usePage();
  const now = route.value as SessionRoute;
  const { tab } = now;
  const target = (name: Tab): SessionRoute => ({
    ...now,
    session: model.branch.value?.short ?? now.session,
    seq: model.isFollowing.value ? null : (model.cursor.value?.seq ?? now.seq),
    tab: name,
    line: null,
    about: "",
  });
  return (
    <section class="panel" aria-label="The step">
      <nav class="tabs" role="tablist" aria-label="Views of the step">
        {TAB_WORDS.map(([name, words, key], index) => (
          <a
            key={name}
            role="tab"
            id={`tab-${name}`}
            tabIndex={tab === name ? 0 : -1}
            aria-selected={tab === name}
            aria-controls="panel"
            title={`${words} (${key})`}
            class={name === "state" ? "tab-state" : ""}
            href={hrefOf(target(name))}
            onKeyDown={(event) => {
              const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
              if (!by) return;
              event.preventDefault();
              event.stopPropagation();
              const next = TAB_WORDS[(index + by + TAB_WORDS.length) % TAB_WORDS.length]![0];
              go(target(next));
              document.getElementById(`tab-${next}`)?.focus();
            }}
            onClick={() => (pane.value = "panel")}
          >
            {words}
          </a>
        ))}
      </nav>
      <div class="panel-body" id="panel" role="tabpanel" aria-labelledby={`tab-${tab}`} tabIndex={-1}>
        {tab === "step" && <StepPanel />}
        {tab === "files" && <FilesPanel />}
        {tab === "prompt" && <PromptPanel />}
        {(tab === "why" || tab === "influence") && <WhyPanel way={tab} />}
        {tab === "raw" && <RawPanel />}
        {tab === "state" && (
          <div class="panel-scroll scroll" tabIndex={0}>
            <h2 class="unseen">State at this place</h2>
            <StateHere />
          </div>
        )}
      </div>
    </section>
  );
}
