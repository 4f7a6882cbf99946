/** Draws lanes onto a canvas. It is called for each frame of a zoom, so it touches only what is visible. */
import { ns } from "../../exact";
import { offset, timeOfDay } from "../../units";
import type { Palette } from "./colours";
import { AXIS, type Geometry } from "./geometry";
import { firstAfter, type Items, type Lane, type Slice } from "./slice";
import { length, ticks, type View } from "./view";

export interface Chosen {
  readonly lane: number;
  readonly row: "calls" | "waits";
  readonly index: number;
}

export interface Scene {
  readonly slice: Slice;
  readonly view: View;
  readonly shape: Geometry;
  readonly palette: Palette;
  readonly origin: bigint;
  readonly chosen: Chosen | null;
}

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
/** Narrower than this, a hatch is only noise, and an item has the colour of its larger part. */
const LEAST_HATCH = 5;
const NESTED = 5;
/** What is much shorter than a pixel still shows, but not as if it filled it. */
const FAINT = 0.35;

export function draw(context: CanvasRenderingContext2D, scene: Scene): void {
  const { shape, palette, slice } = scene;
  context.fillStyle = palette.surface;
  context.fillRect(0, 0, shape.width, shape.height);
  context.font = FONT;
  drawAxis(context, scene);
  slice.lanes.forEach((lane, index) => drawLane(context, scene, lane, AXIS + index * shape.lane));
  drawWakes(context, scene);
  drawChosen(context, scene);
}

export function toX(scene: { view: View; shape: Geometry }, time: number): number {
  return ((time - scene.view.from) / length(scene.view)) * scene.shape.width;
}

function drawAxis(context: CanvasRenderingContext2D, scene: Scene): void {
  const { view, shape, palette, origin } = scene;
  const marks = ticks(view, shape.width / 120);
  const step = (marks[1] ?? 0) - (marks[0] ?? 0) || length(view);
  const isShort = length(view) < 2e9;
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (const mark of marks) {
    const x = Math.round(toX(scene, mark)) + 0.5;
    context.fillStyle = palette.line;
    context.fillRect(x - 0.5, 0, 1, shape.height);
    context.fillStyle = palette.soft;
    const text = isShort ? `+${offset(mark, step)}` : timeOfDay((origin + ns(Math.round(mark))).toString(), step);
    context.fillText(text, x + 5, AXIS / 2);
  }
  context.fillStyle = palette.line;
  context.fillRect(0, AXIS - 1, shape.width, 1);
}

function drawLane(context: CanvasRenderingContext2D, scene: Scene, lane: Lane, top: number): void {
  const { shape, palette } = scene;
  context.fillStyle = palette.line;
  context.fillRect(0, top + shape.lane - 1, shape.width, 1);
  const calls = { top: top + shape.calls.top, height: shape.calls.height };
  const waits = { top: top + shape.waits.top, height: shape.waits.height };
  drawRow(context, scene, lane.calls, calls, palette.classes, null);
  drawRow(context, scene, lane.waits, waits, palette.reasons, palette.hatches);
  drawNames(context, scene, lane.calls, calls, scene.slice.ops);
}

interface Row {
  readonly top: number;
  readonly height: number;
}

/**
 * Narrow items that end in a column which is already filled are passed over, so work is bounded by pixels, not by
 * items. What lies inside of another call is drawn lower.
 */
function drawRow(
  context: CanvasRenderingContext2D,
  scene: Scene,
  items: Items,
  row: Row,
  colours: readonly string[],
  hatches: readonly CanvasPattern[] | null,
): void {
  const { view, shape, palette } = scene;
  const scale = shape.width / length(view);
  let style: string | CanvasPattern = "";
  let filled = 0;
  let inset = 0;
  const fill = (next: string | CanvasPattern, left: number, right: number) => {
    if (next !== style) context.fillStyle = style = next;
    context.fillRect(left, row.top + inset, right - left, row.height - inset);
  };
  for (let index = firstAfter(items, view.from); index < items.start.length; index += 1) {
    const start = items.start[index]!;
    if (start > view.to) break;
    const right = Math.min(shape.width, (items.end[index]! - view.from) * scale);
    const left = Math.max(0, (start - view.from) * scale);
    if (right <= filled && right - left < 2) continue;
    inset = right <= filled ? NESTED : 0;
    const middle = Math.min(right, (items.middle[index]! - view.from) * scale);
    const kind = items.kind[index]!;
    const end = Math.max(right, left + 1);
    if (end - left < LEAST_HATCH) {
      const isBlocked = middle - left >= right - middle;
      const from = Math.round(left);
      context.globalAlpha = Math.min(1, FAINT + right - left);
      fill(isBlocked ? colours[kind]! : palette.runQueue, from, Math.max(from + 1, Math.round(end)));
      context.globalAlpha = 1;
    } else {
      if (middle > left) fill(hatches ? hatches[kind]! : colours[kind]!, left, middle);
      if (right > middle) fill(palette.runQueue, Math.max(left, middle), end);
    }
    filled = Math.max(filled, Math.floor(end));
  }
}

/** Names of calls that are wide enough to hold them. */
function drawNames(
  context: CanvasRenderingContext2D,
  scene: Scene,
  items: Items,
  row: Row,
  names: readonly string[],
): void {
  const { view, shape, palette } = scene;
  const scale = shape.width / length(view);
  context.fillStyle = palette.text;
  context.textBaseline = "middle";
  for (let index = firstAfter(items, view.from); index < items.start.length; index += 1) {
    if (items.start[index]! > view.to) break;
    const left = Math.max(0, (items.start[index]! - view.from) * scale);
    const right = Math.min(shape.width, (items.end[index]! - view.from) * scale);
    const name = names[items.name[index]!] ?? "";
    if (right - left < name.length * 7.2 + 10) continue;
    context.fillText(name, left + 5, row.top + row.height / 2 + 0.5);
  }
}

const MOST_ARROWS = 400;

function drawWakes(context: CanvasRenderingContext2D, scene: Scene): void {
  const { slice, view, shape, palette } = scene;
  context.strokeStyle = context.fillStyle = palette.accent;
  context.lineWidth = 1.2;
  context.globalAlpha = 0.75;
  let drawn = 0;
  for (let at = 0; at < slice.wakes.length && drawn < MOST_ARROWS; at += 3) {
    const time = slice.wakes[at + 2]!;
    if (time < view.from || time > view.to) continue;
    drawArrow(context, shape, toX(scene, time), slice.wakes[at]!, slice.wakes[at + 1]!);
    drawn += 1;
  }
  context.globalAlpha = 1;
}

function drawArrow(context: CanvasRenderingContext2D, shape: Geometry, x: number, waker: number, waiter: number): void {
  const isDown = waiter > waker;
  const from = AXIS + waker * shape.lane + (isDown ? shape.waits.top + shape.waits.height : shape.calls.top);
  const to = AXIS + waiter * shape.lane + (isDown ? shape.waits.top : shape.waits.top + shape.waits.height);
  const tip = isDown ? -6 : 6;
  context.beginPath();
  context.moveTo(x, from);
  context.bezierCurveTo(x - 10, (from + to) / 2, x - 10, (from + to) / 2, x, to + tip / 2);
  context.stroke();
  context.beginPath();
  context.moveTo(x, to);
  context.lineTo(x - 3.5, to + tip);
  context.lineTo(x + 3.5, to + tip);
  context.fill();
}

function drawChosen(context: CanvasRenderingContext2D, scene: Scene): void {
  const { chosen, slice, shape, palette } = scene;
  const items = chosen && slice.lanes[chosen.lane]?.[chosen.row];
  if (!chosen || !items || chosen.index >= items.start.length) return;
  const left = toX(scene, items.start[chosen.index]!);
  const right = Math.max(left + 2, toX(scene, items.end[chosen.index]!));
  const row = shape[chosen.row];
  context.strokeStyle = palette.text;
  context.lineWidth = 2;
  context.strokeRect(left - 1, AXIS + chosen.lane * shape.lane + row.top - 1, right - left + 2, row.height + 2);
}
