/** What lies under the pointer, and what it is in words. */
import type { Chosen } from "./draw";
import { rowAt, type Geometry } from "./geometry";
import { firstAfter, type Items, type Slice } from "./slice";
import { classMeaning, reasonMeaning } from "./colours";
import { length, type View } from "./view";
import { count, duration, who } from "../../units";

/** So near counts as a hit: a pixel is hard to point at. */
const NEAR = 3;

export function itemAt(slice: Slice, view: View, shape: Geometry, x: number, y: number): Chosen | null {
  const at = rowAt(shape, y, slice.lanes.length);
  const items = at && slice.lanes[at.lane]?.[at.row];
  if (!at || !items) return null;
  const perPixel = length(view) / shape.width;
  const index = nearest(items, view.from + x * perPixel, perPixel * NEAR);
  return index < 0 ? null : { ...at, index };
}

/** The innermost item that holds the time, or else the nearest one. */
function nearest(items: Items, time: number, reach: number): number {
  let [best, least] = [-1, reach];
  for (let index = firstAfter(items, time - reach); index < items.start.length; index += 1) {
    const distance = Math.max(items.start[index]! - time, time - items.end[index]!, 0);
    if (items.start[index]! > time + reach) break;
    if (distance <= least) [best, least] = [index, distance];
  }
  return best;
}

export interface Words {
  readonly title: string;
  readonly lines: readonly string[];
}

export function describe(slice: Slice, chosen: Chosen): Words {
  const lane = slice.lanes[chosen.lane]!;
  const items = lane[chosen.row];
  const at = chosen.index;
  const span = duration(items.end[at]! - items.start[at]!);
  const many = items.count[at]!;
  const thread = who(lane.comm, lane.pid, lane.tid);
  if (chosen.row === "calls") {
    const kind = classMeaning(slice.classes[items.kind[at]!] ?? "").text;
    const title = slice.ops[items.name[at]!] ?? "call";
    const merged = many > 1 ? [`${count(many)} calls, too close to tell apart`] : [];
    return { title, lines: [`${span} · ${kind}`, ...merged, thread] };
  }
  const blocked = items.middle[at]! - items.start[at]!;
  const queued = items.end[at]! - items.middle[at]!;
  const title = `Off the CPU: ${reasonMeaning(slice.reasons[items.kind[at]!] ?? "").text}`;
  const merged = many > 1 ? [`${count(many)} waits, too close to tell apart`] : [];
  const split =
    queued > 0 ? `${duration(blocked)} blocked, then ${duration(queued)} for a CPU` : `${duration(blocked)} blocked`;
  return { title, lines: [split, ...merged, thread] };
}

/** The record that an item stands for. */
export function refOf(slice: Slice, chosen: Chosen): string {
  const offset = slice.lanes[chosen.lane]![chosen.row].id[chosen.index]!;
  return `${chosen.row === "calls" ? "cuda" : "sched"}:${slice.fromNs + BigInt(offset)}`;
}
