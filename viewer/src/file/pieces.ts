/** The pieces of data in the page: gzipped JSON in elements that are no scripts, inflated when they
 * are looked at.
 */

export const MEDIA_TYPE = "application/x-plait";

/** Digests in a piece of their table, and the bytes of one. */
const TABLE = 4096;
const SIZE = 32;

function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

async function inflate(text: string): Promise<string> {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

/** Put digests for their numbers, and take the second tilde from texts that begin with one. */
export function expand(text: string, digest: (number: number) => string): string {
  return text.replace(/(?<!\\)"~(~|([0-9a-z]+)")/g, (_all, rest: string, number: string | undefined) =>
    number === undefined ? `"${rest}` : `"${digest(parseInt(number, 36))}"`,
  );
}

const KEPT = 24;

/** Named pieces. The ones used last stay inflated. */
export class Pieces {
  #packed: ReadonlyMap<string, string>;
  #open = new Map<string, Promise<unknown>>();
  #tables = new Map<number, Uint8Array>();

  constructor(packed: Iterable<readonly [name: string, text: string]>) {
    this.#packed = new Map(packed);
  }

  static inPage(): Pieces | null {
    const elements = [...document.querySelectorAll<HTMLScriptElement>(`script[type="${MEDIA_TYPE}"]`)];
    if (elements.length === 0) return null;
    const pieces = new Pieces(elements.map((each) => [each.dataset["name"] ?? "", each.textContent ?? ""]));
    for (const element of elements) element.remove();
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
    found ??= inflate(packed).then((text) => JSON.parse(expand(text, (number) => this.#digest(number))) as unknown);
    this.#open.set(name, found);
    if (this.#open.size > KEPT) this.#open.delete(this.#open.keys().next().value!);
    return (await found) as T;
  }

  #digest(number: number): string {
    const at = Math.floor(number / TABLE);
    const table = this.#tables.get(at) ?? bytesOf(this.#packed.get(`digests/${at}`) ?? "");
    this.#tables.set(at, table);
    const start = (number % TABLE) * SIZE;
    return Array.from(table.subarray(start, start + SIZE), (byte) => byte.toString(16).padStart(2, "0")).join("");
  }
}
