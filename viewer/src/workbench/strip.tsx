/** The strip: all steps at once, and the cursor among them. A slider for the mouse, the keys, the ear. */

import { signal, useComputed, useSignalEffect } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { countText, numberText } from "../base/format";
import { usePage } from "../base/page";
import { marksIn, rewoundRows } from "../base/rows";
import { plainText } from "../base/text";
import { colorOf, themeVersion } from "../base/theme";
import type { Model } from "../base/model";
import { Icon, MARK_WORDS } from "../parts/icons";
import { Line } from "../parts/text";
import { lineageOf } from "./lineage";
import { drawBase, drawCursor, drawPast, drawRewound, laneIndex, lineHeight, MARK_HEIGHT, TOP, type StripColors } from "./strip_draw";
import { branchLines, MARK_LINES, rowAtX, stripLayout, xOfRow, type StripLayout, type StripMode } from "./strip_layout";
import { isPlaying } from "./workbench_keys";

export const stripMode = signal<StripMode>("step");
const PLAY_MS = 450;
/** The canvas is wider than the steps, so that the handle is whole at both ends. */
const EDGE = 6;
/** The tip belongs to the pointer on the strip; a row of the list that is hovered shows a line alone. */
const isOver = signal(false);

function readColors(): StripColors {
  return {
    lanes: Array.from({ length: 8 }, (_, index) => colorOf(`--lane-${index}`)),
    ink: colorOf("--ink"), faint: colorOf("--ink-3"), line: colorOf("--line-2"), ground: colorOf("--ground"),
    accent: colorOf("--accent"), good: colorOf("--good"), bad: colorOf("--bad"), warn: colorOf("--warn"),
    font: `11px ${colorOf("--sans")}`,
  };
}

function stripHeight(lines: number): number {
  return TOP + lines * lineHeight(lines) + MARK_LINES.length * MARK_HEIGHT + 8;
}

/** Return a canvas of the right size, empty. */
function begin(element: HTMLCanvasElement | null, layout: StripLayout): CanvasRenderingContext2D | null {
  if (!element) return null;
  const ratio = devicePixelRatio || 1;
  const [width, height] = [Math.round((layout.width + EDGE * 2) * ratio), Math.round(stripHeight(layout.lineCount) * ratio)];
  if (element.width !== width || element.height !== height) Object.assign(element, { width, height });
  const context = element.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, EDGE * ratio, 0);
  context.clearRect(-EDGE, 0, layout.width + EDGE * 2, height);
  return context;
}

/** A row in words, for the ear and for the tooltip. */
export function rowWords(model: Model, row: number): string {
  void model.version.value; // the words may come later
  const at = model.rows.value?.stepAt(row);
  if (!at) return "no step";
  const step = model.stepAt(row);
  const branch = model.family.value!.branches[at.branch]!.name;
  const marks = marksIn(model.outline.value?.marks[row] ?? 0).map((mark) => MARK_WORDS[mark]);
  const words = step ? plainText([step.is_rewound ? "rewound:" : "", step.verb, step.subject, step.says].filter(Boolean).join(" "), 80) : (model.outlines.get(at.log)?.typeAt(at.index) ?? "");
  return [`step ${row + 1} of ${model.rows.value!.count}`, plainText(branch, 40), words, ...marks].filter(Boolean).join(", ");
}

export function Strip() {
  const { model } = usePage();
  const box = useRef<HTMLDivElement>(null);
  const base = useRef<HTMLCanvasElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useRef(signal(0)).current;
  const isDragging = useRef(false);
  usePlaying(model);

  const layout = useComputed(() => {
    const rows = model.rows.value;
    const outline = model.outline.value;
    return rows && outline && width.value > 0 ? stripLayout(rows, outline, width.value, stripMode.value) : null;
  });
  const lines = model.rows.value ? branchLines(model.rows.value).lineCount : 1;

  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => (width.value = box.current!.clientWidth));
    observer.observe(box.current!);
    width.value = box.current!.clientWidth;
    return () => observer.disconnect();
  }, []);

  const rewound = useComputed(() => {
    void model.outlineVersion.value;
    return model.rows.value ? rewoundRows(model.rows.value, model.outlines) : [];
  });
  const colors = useComputed(() => (themeVersion.value, readColors()));
  useSignalEffect(() => {
    const now = layout.value;
    const [rows, outline] = [model.rows.value, model.outline.value];
    const context = now && begin(base.current, now);
    if (context && now && rows && outline) drawBase(context, now, rows, outline, colors.value);
  });
  useSignalEffect(() => {
    const now = layout.value;
    const rows = model.rows.value;
    const context = now && begin(canvas.current, now);
    if (!context || !now || !rows) return;
    const [row, hovered] = [model.row.value, model.hovered.value];
    const high = stripHeight(now.lineCount);
    drawPast(context, now, rows, lineageOf(model).value, row, colors.value);
    drawRewound(context, now, rows, rewound.value, colors.value);
    if (hovered >= 0 && hovered !== row) drawCursor(context, now, hovered, high, colors.value.ink, true);
    drawCursor(context, now, row, high, colors.value.accent, false);
  });

  const rowAt = (event: PointerEvent): number => {
    const now = layout.peek();
    return now ? rowAtX(now, event.clientX - box.current!.getBoundingClientRect().left) : -1;
  };
  const row = model.row.value;
  const count = model.rows.value?.count ?? 0;
  const place = model.cursor.value;
  return (
    <section class="strip" aria-label="Strip of all steps">
      <div class="strip-acts">
        <button type="button" class="button plain square" aria-label="Step before" title="Step before (←)" onClick={() => model.glideTo(row - 1)}>
          <Icon name="left" />
        </button>
        <button type="button" class="button plain square" aria-label={isPlaying.value ? "Stop" : "Play"} title="Play, stop (Space)" onClick={() => (isPlaying.value = !isPlaying.value)}>
          <Icon name={isPlaying.value ? "pause" : "play"} />
        </button>
        <button type="button" class="button plain square" aria-label="Next step" title="Next step (→)" onClick={() => model.glideTo(row + 1)}>
          <Icon name="right" />
        </button>
      </div>
      <div
        ref={box}
        class="strip-slider"
        role="slider"
        tabIndex={0}
        aria-label="Place in the session"
        aria-valuemin={1}
        aria-valuemax={Math.max(1, count)}
        aria-valuenow={Math.max(1, row + 1)}
        aria-valuetext={rowWords(model, row)}
        style={{ height: `${stripHeight(lines)}px` }}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          isDragging.current = true;
          event.currentTarget.setPointerCapture(event.pointerId);
          model.glideTo(rowAt(event));
        }}
        onPointerMove={(event) => {
          if (isDragging.current) model.glideTo(rowAt(event));
          else model.hovered.value = rowAt(event);
        }}
        onPointerUp={() => {
          isDragging.current = false;
          model.endGlide();
        }}
        onPointerEnter={() => (isOver.value = true)}
        onPointerLeave={() => {
          isOver.value = false;
          model.hovered.value = -1;
        }}
      >
        <canvas ref={base} class="strip-canvas" />
        <canvas ref={canvas} class="strip-canvas" />
        <StripTip layout={layout} />
      </div>
      <div class="strip-place">
        <p class="strip-name cut">
          <span class="strip-dot" style={{ background: `var(--lane-${laneIndex(model.branch.value?.color ?? 0)})` }} />
          <Line text={model.branch.value?.name ?? ""} />
          <span>{place ? `@${place.seq}` : ""}</span>
        </p>
        <p class="faint">{`step ${numberText(row + 1)} of ${numberText(count)}`}</p>
        <div class="choice" role="group" aria-label="Width of the strip">
          {(["step", "time"] as const).map((mode) => (
            <button key={mode} type="button" aria-pressed={stripMode.value === mode} onClick={() => (stripMode.value = mode)}>
              {`by ${mode}`}
            </button>
          ))}
        </div>
      </div>
    </section>
  );
}

/** The step under the pointer, in words, above the strip. */
function StripTip({ layout }: { layout: { readonly value: ReturnType<typeof stripLayout> | null } }) {
  const { model } = usePage();
  const row = model.hovered.value;
  const now = layout.value;
  void model.version.value;
  useEffect(() => {
    if (row >= 0) model.need(row, row + 1);
  }, [row]);
  if (row < 0 || !now || !isOver.value) return null;
  const at = model.rows.value!.stepAt(row);
  if (!at) return null;
  const step = model.stepAt(row);
  const isLeft = xOfRow(now, row) > now.width / 2;
  const shared = now.mode === "step" && now.step < 1 ? Math.ceil(1 / now.step) : 1;
  return (
    <div
      class="strip-tip"
      aria-hidden="true"
      style={isLeft ? { right: `${now.width - xOfRow(now, row)}px` } : { left: `${xOfRow(now, row)}px` }}
    >
      <span style={{ color: `var(--lane-${laneIndex(model.family.value!.branches[at.branch]!.color)})` }}>
        <Line text={model.family.value!.branches[at.branch]!.name} />
      </span>
      {step && (
        <>
          {step.verb && <b><Line text={step.verb} /></b>}
          {step.subject && <Line text={step.subject} class="mono" />}
          <Line text={step.says} class="quiet" />
          {step.is_rewound && <span class="warn">rewound</span>}
        </>
      )}
      {shared > 1 && <span class="faint">{`and ${countText(shared - 1, "step")} at this point`}</span>}
    </div>
  );
}

function usePlaying(model: Model): void {
  const is = isPlaying.value;
  useEffect(() => {
    if (!is) return;
    const timer = setInterval(() => {
      const next = model.row.peek() + 1;
      if (next >= (model.rows.peek()?.count ?? 0)) isPlaying.value = false;
      else model.glideTo(next);
    }, PLAY_MS);
    return () => clearInterval(timer);
  }, [is]);
}
