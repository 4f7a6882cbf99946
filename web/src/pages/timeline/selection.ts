/** Stepping through calls and waits with keys: n and p along a row, up and down between rows. */
import type { Chosen } from "./draw";
import { firstAfter, type Slice } from "./slice";
import type { View } from "./view";

/** Where stepping begins: the first call that is visible. */
export function start(slice: Slice, view: View): Chosen {
  return { lane: 0, row: "calls", index: firstAfter(slice.lanes[0]!.calls, view.from) - 1 };
}

export function moved(key: string, slice: Slice, view: View, chosen: Chosen): Chosen | null {
  switch (key) {
    case "n":
      return along(slice, chosen, 1);
    case "p":
      return along(slice, chosen, -1);
    case "ArrowDown":
      return across(slice, view, chosen, 1);
    case "ArrowUp":
      return across(slice, view, chosen, -1);
    default:
      return null;
  }
}

function along(slice: Slice, chosen: Chosen, step: number): Chosen | null {
  const last = (slice.lanes[chosen.lane]?.[chosen.row].start.length ?? 0) - 1;
  if (last < 0) return null;
  return { ...chosen, index: Math.max(0, Math.min(last, chosen.index + step)) };
}

/** The next row that has anything in it, near the same time. */
function across(slice: Slice, view: View, chosen: Chosen, step: number): Chosen | null {
  const items = slice.lanes[chosen.lane]?.[chosen.row];
  const time = Math.max(view.from, items?.start[chosen.index] ?? view.from);
  const rows = slice.lanes.length * 2;
  const from = chosen.lane * 2 + (chosen.row === "waits" ? 1 : 0);
  for (let at = from + step; at >= 0 && at < rows; at += step) {
    const [lane, row] = [at >> 1, at % 2 === 1 ? ("waits" as const) : ("calls" as const)];
    const found = slice.lanes[lane]![row];
    if (found.start.length > 0) return { lane, row, index: Math.min(found.start.length - 1, firstAfter(found, time)) };
  }
  return null;
}

/** The same record in another slice; null where it was merged into another one. */
export function again(before: Slice, chosen: Chosen, after: Slice): Chosen | null {
  const old = before.lanes[chosen.lane]?.[chosen.row];
  const items = after.lanes[chosen.lane]?.[chosen.row];
  if (!old || !items || chosen.index < 0 || chosen.index >= old.start.length) return null;
  const id = old.id[chosen.index]! + Number(before.fromNs - after.fromNs);
  const index = items.id.indexOf(id);
  return index < 0 ? null : { ...chosen, index };
}
