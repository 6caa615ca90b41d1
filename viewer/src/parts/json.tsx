/** A value as a tree that opens where it is asked to: depth and size do not matter. */

import { useState } from "preact/hooks";
import type { Json } from "../shapes";
import { numberText } from "../base/format";
import { Pieces } from "./text";

const OPEN_DEPTH = 2;
const FEW = 40;
const STRING_MAX = 600;

function isTable(value: Json): value is { readonly [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function Scalar({ value }: { value: Json }) {
  const [isWhole, open] = useState(false);
  if (typeof value === "string") {
    const isCut = value.length > STRING_MAX && !isWhole;
    return (
      <span class="json-string">
        <Pieces text={JSON.stringify(isCut ? value.slice(0, STRING_MAX) : value.slice(0, 200_000))} />
        {isCut && (
          <button type="button" class="link" onClick={() => open(true)}>
            {` … ${numberText(value.length - STRING_MAX)} more`}
          </button>
        )}
      </span>
    );
  }
  return <span class={typeof value === "number" ? "json-number" : "json-word"}>{String(value)}</span>;
}

function Key({ name }: { name: string | null }) {
  return name === null ? null : (
    <span class="json-key">
      <Pieces text={name.slice(0, 300)} />
      {": "}
    </span>
  );
}

function Node({ name, value, depth }: { name: string | null; value: Json; depth: number }) {
  const isList = Array.isArray(value);
  const entries: readonly (readonly [string | null, Json])[] = isList
    ? (value as readonly Json[]).map((each) => [null, each] as const)
    : isTable(value)
      ? Object.entries(value)
      : [];
  const [isOpen, setOpen] = useState(depth < OPEN_DEPTH && entries.length <= FEW);
  const [count, setCount] = useState(FEW);
  if (!isList && !isTable(value))
    return (
      <div>
        <Key name={name} />
        <Scalar value={value} />
      </div>
    );
  const brackets = isList ? "[]" : "{}";
  if (entries.length === 0)
    return (
      <div>
        <Key name={name} />
        <span class="faint">{brackets}</span>
      </div>
    );
  return (
    <details open={isOpen} onToggle={(event) => setOpen((event.currentTarget as HTMLDetailsElement).open)}>
      <summary>
        <Key name={name} />
        <span class="faint">{isList ? `${numberText(entries.length)} items` : `{${entries.length}}`}</span>
      </summary>
      {isOpen && (
        <ul>
          {entries.slice(0, count).map(([key, each], index) => (
            <li key={index}>
              <Node name={key} value={each} depth={depth + 1} />
            </li>
          ))}
          {entries.length > count && (
            <li>
              <button type="button" class="link" onClick={() => setCount(count + 200)}>
                {`${numberText(entries.length - count)} more`}
              </button>
            </li>
          )}
        </ul>
      )}
    </details>
  );
}

/** Show a value. The entries of a table stand at the margin; `isBare` leaves out the outer fold;
 * `isFolded` shows it closed.
 */
export function JsonView({ value, isBare = false, isFolded = false }: { value: Json; isBare?: boolean; isFolded?: boolean }) {
  if (isBare && isTable(value) && Object.keys(value).length <= FEW)
    return (
      <div class="json">
        {Object.entries(value).map(([key, each]) => (
          <Node key={key} name={key} value={each} depth={1} />
        ))}
      </div>
    );
  return (
    <div class="json">
      <Node name={null} value={value} depth={isFolded ? OPEN_DEPTH : 0} />
    </div>
  );
}
