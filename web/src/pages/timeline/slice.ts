/** A piece of the trace as it is drawn: lanes of calls and waits in flat arrays, with times counted from one origin. */
import type { TimelineSlice } from "../../answers";
import { ns } from "../../exact";

/** One row of a lane, in the order of time. Times are nanoseconds after the origin. */
export interface Items {
  readonly start: Float64Array;
  readonly end: Float64Array;
  /** The latest end up to here: calls may nest, so ends alone are not in order. */
  readonly reach: Float64Array;
  /** Where blocked time ends and waiting for a CPU begins; `end` for calls. */
  readonly middle: Float64Array;
  /** Into `kinds` of the slice: what colour it has. */
  readonly kind: Uint16Array;
  /** Into `names` of the slice. */
  readonly name: Uint16Array;
  /** How many were merged into this one. */
  readonly count: Float64Array;
  /** Nanoseconds from the slice's beginning to the record's id. */
  readonly id: Float64Array;
}

export interface Lane {
  readonly pid: number;
  readonly tid: number;
  readonly comm: string;
  readonly processComm: string;
  readonly isDispatcher: boolean;
  readonly calls: Items;
  readonly waits: Items;
}

export interface Slice {
  readonly from: number;
  readonly to: number;
  /** The slice's beginning, in Unix time. */
  readonly fromNs: bigint;
  readonly lanes: readonly Lane[];
  readonly classes: readonly string[];
  readonly ops: readonly string[];
  readonly reasons: readonly string[];
  /** From lane, to lane, when: threes. */
  readonly wakes: Float64Array;
}

export function decode(answer: TimelineSlice, origin: bigint): Slice {
  const fromNs = ns(answer.from_ns_text);
  const from = Number(fromNs - origin);
  const lanes = answer.lanes.map((lane) => ({
    pid: lane.pid,
    tid: lane.tid,
    comm: lane.comm,
    processComm: lane.process_comm,
    isDispatcher: lane.is_dispatcher,
    calls: calls(lane.calls, from),
    waits: waits(lane.waits, from),
  }));
  const wakes = new Float64Array(answer.wakes.length * 3);
  answer.wakes.forEach(([waker, waiter, at], index) => wakes.set([waker, waiter, from + at], index * 3));
  return {
    from,
    to: Number(ns(answer.window.to_ns) - origin),
    fromNs,
    lanes,
    classes: answer.classes,
    ops: answer.ops,
    reasons: answer.reasons,
    wakes,
  };
}

function calls(rows: TimelineSlice["lanes"][number]["calls"], from: number): Items {
  const items = room(rows.length);
  rows.forEach(([offset, length, kind, name, id, count], index) => {
    items.start[index] = from + offset;
    items.end[index] = from + offset + length;
    items.middle[index] = from + offset + length;
    items.kind[index] = kind;
    items.name[index] = name;
    items.id[index] = id;
    items.count[index] = count;
  });
  return reaching(items);
}

function waits(rows: TimelineSlice["lanes"][number]["waits"], from: number): Items {
  const items = room(rows.length);
  rows.forEach(([offset, blocked, runqueue, reason, , id, count], index) => {
    items.start[index] = from + offset;
    items.middle[index] = from + offset + blocked;
    items.end[index] = from + offset + blocked + runqueue;
    items.kind[index] = reason;
    items.name[index] = reason;
    items.id[index] = id;
    items.count[index] = count;
  });
  return reaching(items);
}

function reaching(items: Items): Items {
  let reach = -Infinity;
  items.end.forEach((end, index) => {
    items.reach[index] = reach = Math.max(reach, end);
  });
  return items;
}

function room(length: number): Items {
  const times = () => new Float64Array(length);
  const indexes = () => new Uint16Array(length);
  const [start, end, middle, reach] = [times(), times(), times(), times()];
  return { start, end, middle, reach, kind: indexes(), name: indexes(), count: times(), id: times() };
}

/** Where to begin in order to meet every item that reaches beyond this time. */
export function firstAfter(items: Items, time: number): number {
  let [low, high] = [0, items.reach.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items.reach[middle]! < time) low = middle + 1;
    else high = middle;
  }
  return low;
}
