/** The whole trace as a strip: how much of the time dispatch threads spent in calls and waits, and what is visible. */
import { useEffect, useRef } from "preact/hooks";
import { colour, useTheme } from "../../theme";
import { duration } from "../../units";
import { palette } from "./colours";
import type { Items, Slice } from "./slice";
import { length, within, type View } from "./view";

const HEIGHT = 44;

export function Overview(props: { whole: Slice; view: View; width: number; onView: (view: View) => void }) {
  const { whole, view, width } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  useEffect(() => {
    if (canvas.current) paint(canvas.current, whole, width);
  }, [whole, width, theme]);
  const all = { from: whole.from, to: whole.to };
  const drag = (event: PointerEvent) => {
    if (event.type === "pointermove" && event.buttons === 0) return;
    if (event.type === "pointerdown") (event.currentTarget as Element).setPointerCapture(event.pointerId);
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const time = all.from + ((event.clientX - box.left) / box.width) * length(all);
    props.onView(within({ from: time - length(view) / 2, to: time + length(view) / 2 }, all));
  };
  const percent = (time: number) => `${((time - all.from) / length(all)) * 100}%`;
  return (
    <div class="overview" onPointerDown={drag} onPointerMove={drag} title="Drag to move">
      <canvas ref={canvas} aria-hidden="true" />
      <div
        class="brush"
        style={{ left: percent(view.from), width: `max(3px, ${(length(view) / length(all)) * 100}%)` }}
      />
      <span class="visually-hidden">
        {duration(length(view))} of {duration(length(all))} are visible
      </span>
    </div>
  );
}

function paint(canvas: HTMLCanvasElement, whole: Slice, width: number): void {
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = HEIGHT * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${HEIGHT}px`;
  const context = canvas.getContext("2d")!;
  context.scale(ratio, ratio);
  const colours = palette(whole.classes, whole.reasons);
  const lanes = whole.lanes.filter((lane) => lane.isDispatcher);
  const shown = lanes.length > 0 ? lanes : whole.lanes;
  const columns = Math.max(1, Math.floor(width / 2));
  const [calls, waits] = [new Float64Array(columns), new Float64Array(columns)];
  for (const lane of shown) {
    fill(calls, lane.calls, whole);
    fill(waits, lane.waits, whole);
  }
  const waiting = colour("part-input");
  context.fillStyle = colours.low;
  context.fillRect(0, 0, width, HEIGHT);
  const bar = (value: number) => Math.min(1, value / shown.length) * (HEIGHT / 2 - 3);
  for (let at = 0; at < columns; at += 1) {
    context.fillStyle = colours.accent;
    context.fillRect(at * 2, HEIGHT / 2 - bar(calls[at]!), 1.5, bar(calls[at]!));
    context.fillStyle = waiting;
    context.fillRect(at * 2, HEIGHT / 2 + 1, 1.5, bar(waits[at]!));
  }
}

/** Adds which share of each column a row fills. */
function fill(columns: Float64Array, items: Items, whole: Slice): void {
  const column = (whole.to - whole.from) / columns.length;
  items.start.forEach((start, index) => {
    const [from, to] = [(start - whole.from) / column, (items.end[index]! - whole.from) / column];
    for (let at = Math.max(0, Math.floor(from)); at <= Math.min(columns.length - 1, Math.floor(to)); at += 1) {
      columns[at]! += Math.max(0, Math.min(to, at + 1) - Math.max(from, at));
    }
  });
}
