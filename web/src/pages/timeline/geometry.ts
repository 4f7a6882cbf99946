/** Where lanes and their rows lie, in pixels. */
export interface Geometry {
  readonly width: number;
  readonly height: number;
  readonly lane: number;
  readonly calls: { readonly top: number; readonly height: number };
  readonly waits: { readonly top: number; readonly height: number };
}

export const AXIS = 28;

/** Lanes are taller where there are few of them. */
const FEW = 8;

/** On narrow screens names stand above the lanes instead of beside them. */
export function geometry(width: number, lanes: number, isNarrow: boolean): Geometry {
  const label = isNarrow ? 20 : 0;
  const [calls, waits] = lanes <= FEW ? [28, 20] : [18, 13];
  const top = label + 7;
  const lane = top + calls + 3 + waits + 7;
  return {
    width,
    height: AXIS + lane * lanes,
    lane,
    calls: { top, height: calls },
    waits: { top: top + calls + 3, height: waits },
  };
}

/** The lane and the row at a height; null on the axis. */
export function rowAt(shape: Geometry, y: number, lanes: number): { lane: number; row: "calls" | "waits" } | null {
  const lane = Math.floor((y - AXIS) / shape.lane);
  if (y < AXIS || lane >= lanes) return null;
  const inside = y - AXIS - lane * shape.lane;
  return { lane, row: inside < shape.waits.top - 1 ? "calls" : "waits" };
}
