/** The theme: the system's, unless the reader chose one. */

import { effect, signal } from "@preact/signals";

export type ThemeChoice = "system" | "light" | "dark";

const KEY = "plait-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

function remembered(): ThemeChoice {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : "system";
  } catch {
    return "system"; // storage is refused, as in some frames and files
  }
}

export const themeChoice = signal<ThemeChoice>(remembered());
const systemIsDark = signal(dark.matches);
/** Counts changes of the theme: a canvas reads its colours again. */
export const themeVersion = signal(0);

export function startTheme(): void {
  dark.addEventListener("change", (event) => {
    systemIsDark.value = event.matches;
  });
  effect(() => {
    const choice = themeChoice.value;
    const isDark = choice === "dark" || (choice === "system" && systemIsDark.value);
    document.documentElement.dataset["theme"] = isDark ? "dark" : "light";
    themeVersion.value = themeVersion.peek() + 1;
    try {
      if (choice === "system") localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, choice);
    } catch {
      // not remembered
    }
  });
}

export function colorOf(token: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(token).trim();
}
