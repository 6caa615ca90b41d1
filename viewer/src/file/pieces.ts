/** The pieces of data in the page: gzipped JSON in elements that are no scripts, inflated when they
 * are looked at.
 */

export const MEDIA_TYPE = "application/x-plait";

async function inflate(text: string): Promise<unknown> {
  const binary = atob(text);
  const bytes = Uint8Array.from(binary, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

const KEPT = 24;

/** Named pieces. The ones used last stay inflated. */
export class Pieces {
  #packed = new Map<string, string>();
  #open = new Map<string, Promise<unknown>>();

  static inPage(): Pieces | null {
    const elements = document.querySelectorAll<HTMLScriptElement>(`script[type="${MEDIA_TYPE}"]`);
    if (elements.length === 0) return null;
    const pieces = new Pieces();
    for (const element of elements) {
      pieces.#packed.set(element.dataset["name"] ?? "", element.textContent ?? "");
      element.remove();
    }
    return pieces;
  }

  has(name: string): boolean {
    return this.#packed.has(name);
  }

  names(subject: string): string[] {
    return [...this.#packed.keys()].filter((name) => name.startsWith(`${subject}/`));
  }

  /** Return a piece; null: the file does not have it. */
  async get<T>(name: string): Promise<T | null> {
    const packed = this.#packed.get(name);
    if (packed === undefined) return null;
    let found = this.#open.get(name);
    this.#open.delete(name);
    found ??= inflate(packed);
    this.#open.set(name, found);
    if (this.#open.size > KEPT) this.#open.delete(this.#open.keys().next().value!);
    return (await found) as T;
  }
}
