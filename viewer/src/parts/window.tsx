/** A list that draws the rows in sight and no others. All rows have one height. */

import type { ComponentChildren, VNode } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { HEIGHT_MAX, rowsInSight, scrollFor, type Sight } from "../base/windowing";

interface WindowProps {
  readonly count: number;
  readonly row: number;
  readonly draw: (index: number) => VNode;
  /** Drawn behind the rows, in the coordinates of the first row in sight. */
  readonly under?: (sight: Sight) => ComponentChildren;
  readonly onSight?: (sight: Sight) => void;
  /** The row to keep in sight when it changes; -1: none. */
  readonly goal?: number;
  /** Changes if the goal is to be looked up again. */
  readonly goalKey?: string | number;
  readonly class?: string;
  readonly more?: number;
  /** Attributes of the element that scrolls. */
  readonly attributes?: Record<string, unknown>;
  readonly margin?: number;
}

export function Window(props: WindowProps) {
  const { count, row, goal = -1, more = 6 } = props;
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const whole = count * row;
  const height = Math.min(whole, HEIGHT_MAX);
  // A list that is too high for a browser scrolls in larger steps.
  const scale = whole > HEIGHT_MAX ? (whole - view.height) / (height - view.height) : 1;

  useLayoutEffect(() => {
    const element = box.current!;
    const look = () => {
      const next = { top: element.scrollTop, height: element.clientHeight };
      setView((old) => (old.top === next.top && old.height === next.height ? old : next));
    };
    look();
    element.addEventListener("scroll", look, { passive: true });
    const observer = new ResizeObserver(look);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", look);
      observer.disconnect();
    };
  }, []);

  const top = view.top * scale;
  const sight = rowsInSight(top, view.height, row, count, more);

  useLayoutEffect(() => {
    const element = box.current!;
    if (goal < 0) return;
    const target = scrollFor(goal, element.scrollTop * scale, element.clientHeight, row, props.margin);
    if (target !== null) element.scrollTop = target / scale;
  }, [goal, props.goalKey, view.height === 0]);

  useEffect(() => props.onSight?.(sight), [sight.first, sight.end, count, props.onSight]);

  const rows: VNode[] = [];
  for (let index = sight.first; index < sight.end; index += 1) rows.push(props.draw(index));
  const offset = sight.first * row - (top - view.top);
  return (
    <div ref={box} class={`window ${props.class ?? ""}`} {...props.attributes}>
      <div class="window-inner" role="presentation" style={{ height: `${height}px` }}>
        <div class="window-rows" role="presentation" style={{ transform: `translateY(${offset}px)` }}>
          {props.under?.(sight)}
          {rows}
        </div>
      </div>
    </div>
  );
}
