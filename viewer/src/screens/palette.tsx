/** The palette: sessions, steps, files and acts by a few letters. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Answer, useAnswer } from "../base/answer";
import { agoText } from "../base/format";
import { usePage, type Page } from "../base/page";
import { go, route, sessionRoute, TABS, type Route } from "../base/router";
import { themeChoice } from "../base/theme";
import { Icon, TYPE_ICONS, type IconName } from "../parts/icons";
import { isHelpOpen } from "../parts/keys_help";
import { Line } from "../parts/text";
import { ACTS } from "./acts";
import { fit } from "./fit";
import { actShown, isFindOpen, isPaletteOpen, type ActName } from "./opened";

const MOST = 8;
const FOLDERS_MAX = 60;
const ROWS_MAX = 20_000;

interface Entry {
  readonly group: string;
  readonly icon: IconName;
  readonly words: string;
  readonly more: string;
  readonly key?: string;
  readonly act: () => void;
}

function best(entries: readonly Entry[], wanted: string, most: number, isLoose = false): Entry[] {
  return entries
    .map((entry) => [fit(`${entry.words} ${entry.more}`, wanted, isLoose), entry] as const)
    .filter((pair): pair is readonly [number, Entry] => pair[0] !== null)
    .sort((a, b) => b[0] - a[0])
    .slice(0, most)
    .map(([, entry]) => entry);
}

function actEntries({ model, source }: Page): Entry[] {
  const to = (words: string, icon: IconName, target: Route, key?: string): Entry => ({ group: "Go", icon, words, more: "", act: () => go(target), ...(key ? { key } : {}) });
  const entries: Entry[] = [
    to("Home: all sessions", "home", { screen: "home", filter: "" }, "g h"),
    to("Inbox: what waits for you", "inbox", { screen: "inbox", session: "" }, "g i"),
    to("Cost of all sessions", "coin", { screen: "cost", session: "" }, "g c"),
    { group: "Go", icon: "keys", words: "Keys", more: "", key: "?", act: () => (isHelpOpen.value = true) },
    { group: "Go", icon: "sun", words: "Theme: light, dark, as the system", more: "", act: () => (themeChoice.value = themeChoice.peek() === "light" ? "dark" : themeChoice.peek() === "dark" ? "system" : "light") },
  ];
  const place = model.cursor.peek();
  const branch = model.branch.peek();
  const now = route.peek();
  if (!place || !branch || now.screen !== "session") return entries;
  const { short } = branch;
  const root = model.family.peek()!.branches[0]!;
  for (const tab of TABS) entries.push({ group: "Show", icon: "right", words: `${tab[0]!.toUpperCase()}${tab.slice(1)} of this place`, more: "", act: () => go({ ...now, tab, line: null, about: "" }) });
  entries.push(
    { group: "Act", icon: "whatif", words: "What if… from this place", more: "", key: "f", act: () => go({ screen: "whatif", session: short, seq: place.seq }) },
    { group: "Act", icon: "compare", words: "Compare with another branch", more: "", key: "c", act: () => go({ screen: "compare", left: root.short, right: short }) },
    { group: "Go", icon: "coin", words: "Cost of this session", more: "", act: () => go({ screen: "cost", session: root.short }) },
    { group: "Go", icon: "memory", words: "Memory of this session", more: "", act: () => go({ screen: "memory", session: short }) },
    { group: "Act", icon: "passed", words: "Verify this session", more: "", act: () => go({ screen: "verify", session: short }) },
    { group: "Act", icon: "search", words: "Find in the steps", more: "", key: "Ctrl+f", act: () => (isFindOpen.value = true) },
  );
  if (!source.isFile)
    for (const name of Object.keys(ACTS) as ActName[])
      entries.push({ group: "Act", icon: ACTS[name].icon, words: ACTS[name].name, more: short, act: () => (actShown.value = { act: name, session: short, seq: place.seq }) });
  for (const each of model.family.peek()!.branches.slice(0, 300))
    if (each.log !== place.log) entries.push({ group: "Act", icon: "compare", words: `Compare with ${each.name || each.short}`, more: each.short, act: () => go({ screen: "compare", left: short, right: each.short }) });
  return entries;
}

function stepEntries({ model }: Page): Entry[] {
  const rows = model.rows.peek();
  if (!rows || route.peek().screen !== "session") return [];
  const entries: Entry[] = [];
  for (let row = 0; row < Math.min(rows.count, ROWS_MAX); row += 1) {
    const step = model.stepAt(row);
    if (!step) continue;
    entries.push({
      group: "Steps",
      icon: TYPE_ICONS[step.type],
      words: [step.verb, step.subject, step.says].filter(Boolean).join(" "),
      more: model.placeName({ log: step.log, seq: step.seq }),
      act: () => model.goTo({ log: step.log, seq: step.seq }),
    });
  }
  return entries;
}

/** Read the paths of a tree, folder by folder, as far as is bearable. */
async function pathsOf({ source }: Page, tree: string): Promise<string[]> {
  const paths: string[] = [];
  const folders = [""];
  for (let read = 0; read < FOLDERS_MAX && folders.length > 0; read += 1) {
    const folder = await source.folder(tree, folders.shift()!).get();
    for (const entry of folder.entries) (entry.kind === "folder" ? folders : paths).push(entry.path);
  }
  return paths;
}

function useFiles(page: Page): Entry[] {
  const [paths, setPaths] = useState<readonly string[]>([]);
  const place = page.model.cursor.peek();
  useEffect(() => {
    if (!place || route.peek().screen !== "session") return;
    let isOver = false;
    page.source.session(`${place.log}@${place.seq}`).get()
      .then((at) => (at.tree ? pathsOf(page, at.tree) : []))
      .then((found) => !isOver && setPaths(found), () => undefined);
    return () => {
      isOver = true;
    };
  }, []);
  return useMemo(
    () => paths.map((path): Entry => ({
      group: "Files", icon: "file", words: path, more: "",
      act: () => place && go(sessionRoute(page.model.branch.peek()?.short ?? place.log, place.seq, { tab: "files", path })),
    })),
    [paths],
  );
}

const NONE = new Answer<never>(() => new Promise<never>(() => undefined));

export function Palette() {
  return isPaletteOpen.value ? <OpenPalette /> : null;
}

function OpenPalette() {
  const page = usePage();
  const box = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [asked, setAsked] = useState("");
  const [at, setAt] = useState(0);
  const close = () => (isPaletteOpen.value = false);
  // Before the next key is pressed: it belongs to the palette.
  useLayoutEffect(() => {
    const before = document.activeElement;
    const element = box.current!;
    element.showModal();
    return () => {
      element.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(text.trim()), 120);
    return () => clearTimeout(timer);
  }, [text]);
  const sessions = useAnswer(page.source.isFile ? NONE : page.source.sessions(asked)).value?.sessions ?? [];
  const acts = useMemo(() => actEntries(page), []);
  const steps = useMemo(() => stepEntries(page), [page.model.version.value]);
  const files = useFiles(page);
  const wanted = text.trim();
  const found: Entry[] = [
    ...best(acts, wanted, wanted ? 5 : 40, true),
    ...sessions.slice(0, MOST).map((session): Entry => ({
      group: "Sessions", icon: "words", words: session.name, more: `${session.standing} · ${agoText(session.updated)}`,
      act: () => go(sessionRoute(session.short)),
    })),
    ...(wanted ? best(steps, wanted, MOST) : []),
    ...(wanted ? best(files, wanted, MOST) : []),
  ];
  // Entries of one group stand together, the group with the best entry first.
  const groups = new Map<string, Entry[]>();
  for (const entry of found) groups.set(entry.group, [...(groups.get(entry.group) ?? []), entry]);
  const list = [...groups.values()].flat();
  const chosen = Math.max(0, Math.min(at, list.length - 1));
  useEffect(() => {
    box.current?.querySelector(`#palette-${chosen}`)?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  const take = (entry: Entry | undefined) => {
    if (!entry) return;
    close();
    // The dialog gives the focus back first: what opens next takes it then.
    setTimeout(entry.act, 0);
  };
  let index = -1;
  return (
    <dialog
      ref={box}
      class="palette"
      aria-label="Go to a session, a step, a file, or do something"
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onClick={(event) => {
        if (event.target === box.current) close();
      }}
    >
      <input
        class="palette-input"
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={list.length ? `palette-${chosen}` : undefined}
        aria-label="A session, a step, a file, an act"
        placeholder="A session, a step, a file, an act…"
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={(event) => {
          const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
          if (by) {
            event.preventDefault();
            setAt((chosen + by + list.length) % Math.max(1, list.length));
          } else if (event.key === "Enter") {
            event.preventDefault();
            take(list[chosen]);
          }
        }}
      />
      <div id="palette-list" class="palette-list scroll" role="listbox" aria-label="Found">
        {[...groups].map(([group, entries]) => (
          <div key={group} role="group" aria-label={group}>
            <div class="label palette-group" aria-hidden="true">{group}</div>
            {entries.map((entry) => {
              index += 1;
              const own = index;
              return (
                <div key={own} id={`palette-${own}`} role="option" aria-selected={own === chosen} class="palette-row" onPointerMove={() => setAt(own)} onClick={() => take(entry)}>
                  <Icon name={entry.icon} />
                  <Line text={entry.words} />
                  <span class="faint palette-more">{entry.more}</span>
                  {entry.key && <kbd class="key" aria-hidden="true">{entry.key}</kbd>}
                </div>
              );
            })}
          </div>
        ))}
        {list.length === 0 && <p class="palette-none quiet">Nothing is called that.</p>}
      </div>
    </dialog>
  );
}
