/** The table of keys: what the screen that is shown understands. */

import { signal } from "@preact/signals";
import { allKeys, type KeyAct } from "../base/keys";
import { Dialog } from "./dialog";

export const isHelpOpen = signal(false);

const SIGNS: Readonly<Record<string, string>> = {
  ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc",
};

export function Key({ name }: { name: string }) {
  return (
    <>
      {name.split(" ").map((part, index) => (
        <kbd key={index} class="key">
          {part.split("+").map((each) => SIGNS[each] ?? each).join(" ")}
        </kbd>
      ))}
    </>
  );
}

export function KeysHelp() {
  if (!isHelpOpen.value) return null;
  const groups = new Map<string, KeyAct[]>();
  for (const each of allKeys()) {
    if (each.isHidden) continue;
    const name = each.group ?? "Everywhere";
    const known = groups.get(name) ?? [];
    if (!known.some((other) => other.words === each.words && other.key === each.key)) known.push(each);
    groups.set(name, known);
  }
  return (
    <Dialog title="Keys" onClose={() => (isHelpOpen.value = false)} class="keys-help">
      <div class="keys-groups" tabIndex={0}>
        {[...groups].map(([name, acts]) => (
          <section key={name}>
            <h3 class="label">{name}</h3>
            <dl>
              {acts.map((each) => (
                <div key={each.key + each.words}>
                  <dt>
                    <Key name={each.key} />
                  </dt>
                  <dd>{each.words}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
