/** How well some letters fit a text. */

/** Tell how well some letters fit a text: words in a row count most; null: they do not fit. */
export function fit(text: string, wanted: string, isLoose = true): number | null {
  if (wanted === "") return 0;
  const low = text.toLowerCase();
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  let score = 0;
  for (const word of words) {
    const at = low.indexOf(word);
    if (at >= 0) {
      score += at === 0 || /[\s/_.-]/.test(low[at - 1]!) ? 3 : 2;
      continue;
    }
    if (!isLoose) return null;
    let from = 0;
    for (const letter of word) {
      from = low.indexOf(letter, from) + 1;
      if (from === 0) return null;
    }
    score += 0.5;
  }
  return score - text.length / 1000;
}
