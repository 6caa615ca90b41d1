/** Which dialogs are open. */

import { signal } from "@preact/signals";

/** The ask that is shown over the screen. */
export const askShown = signal<{ readonly session: string; readonly ask: string } | null>(null);

export type ActName = "fork" | "rewind" | "send" | "note" | "pause" | "unpause" | "cancel" | "close";
/** The act that is asked for at a place. */
export const actShown = signal<{ readonly act: ActName; readonly session: string; readonly seq: number | null; readonly words?: string } | null>(null);

export const isPaletteOpen = signal(false);
export const isFindOpen = signal(false);
