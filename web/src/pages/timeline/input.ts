/** Wheel, drag, pinch and keys become moves of the view. */
import { length, panned, zoomed, type View } from "./view";

export interface Moves {
  view(): View;
  all(): View;
  /** Pixels of the canvas. */
  width(): number;
  move(view: View): void;
  point(x: number, y: number): void;
  leave(): void;
  click(x: number, y: number): void;
}

const WHEEL = 0.0018;
/** A hand is not steady: so many pixels are still a click. */
const STEADY = 4;

export function listen(canvas: HTMLCanvasElement, moves: Moves): () => void {
  const control = new AbortController();
  const { signal } = control;
  const pointers = new Map<number, { x: number; y: number }>();
  let travelled = 0;

  const timeAt = (x: number) => moves.view().from + (x / moves.width()) * length(moves.view());
  const place = (event: PointerEvent) => ({ x: event.offsetX, y: event.offsetY });

  const onWheel = (event: WheelEvent) => {
    event.preventDefault();
    const pixels = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    const [dx, dy] = event.shiftKey ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
    if (Math.abs(dx) > Math.abs(dy)) return pan(dx * pixels);
    const factor = Math.exp(Math.max(-1, Math.min(1, dy * pixels * WHEEL)));
    moves.move(zoomed(moves.view(), timeAt(event.offsetX), factor, moves.all()));
  };
  const pan = (pixels: number) => {
    moves.move(panned(moves.view(), (pixels / moves.width()) * length(moves.view()), moves.all()));
  };
  const onDown = (event: PointerEvent) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    if (pointers.size === 1) travelled = 0;
  };
  const onMove = (event: PointerEvent) => {
    const before = pointers.get(event.pointerId);
    const now = place(event);
    if (!before) return moves.point(now.x, now.y);
    travelled += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) pinch(before, now, other);
    else if (travelled > STEADY) pan(before.x - now.x);
    pointers.set(event.pointerId, now);
  };
  const pinch = (before: { x: number }, now: { x: number }, other: { x: number }) => {
    const [old, fresh] = [Math.abs(before.x - other.x), Math.abs(now.x - other.x)];
    if (old < 8 || fresh < 8) return;
    moves.move(zoomed(moves.view(), timeAt((now.x + other.x) / 2), old / fresh, moves.all()));
  };
  const onUp = (event: PointerEvent) => {
    const wasDown = pointers.delete(event.pointerId);
    if (wasDown && pointers.size === 0 && travelled <= STEADY) moves.click(event.offsetX, event.offsetY);
  };

  canvas.addEventListener("wheel", onWheel, { signal, passive: false });
  canvas.addEventListener("pointerdown", onDown, { signal });
  canvas.addEventListener("pointermove", onMove, { signal });
  canvas.addEventListener("pointerup", onUp, { signal });
  canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId), { signal });
  canvas.addEventListener("pointerleave", () => moves.leave(), { signal });
  return () => control.abort();
}

/** What a key does to the view; null when it means nothing here. */
export function keyed(key: string, view: View, all: View): View | null {
  const middle = (view.from + view.to) / 2;
  switch (key) {
    case "ArrowLeft":
      return panned(view, -length(view) / 6, all);
    case "ArrowRight":
      return panned(view, length(view) / 6, all);
    case "+":
    case "=":
      return zoomed(view, middle, 0.5, all);
    case "-":
      return zoomed(view, middle, 2, all);
    case "0":
      return all;
    default:
      return null;
  }
}
