/** What a canvas needs besides a drawing: a backing store for the screen's pixels, and one drawing a frame. */
import type { View } from "./view";

/** Sets the backing store only when the size changes: that clears the canvas. */
export function sized(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const ratio = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d", { alpha: false });
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** Several moves within one frame are one drawing. */
export function perFrame(set: (view: View) => void): { set: (view: View) => void; latest: () => View | null } {
  let next: View | null = null;
  const paint = () => {
    if (next) set(next);
    next = null;
  };
  return {
    set: (view) => {
      if (!next) requestAnimationFrame(paint);
      next = view;
    },
    latest: () => next,
  };
}
