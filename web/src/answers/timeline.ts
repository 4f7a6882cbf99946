/** `timeline`: a slice of time to draw. */
import type { Basis } from "./basis";

/** Offset, length, class, op, offset of the id or -1, how many. */
export type TimelineCall = [number, number, number, number, number, number];

/** Offset, blocked, waiting for a CPU, reason, the waker's lane or -1, offset of the id or -1, how many. */
export type TimelineWait = [number, number, number, number, number, number, number];

export interface TimelineLane {
  pid: number;
  tid: number;
  comm: string;
  process_comm: string;
  is_dispatcher: boolean;
  calls: TimelineCall[];
  waits: TimelineWait[];
}

export interface TimelineAnswer extends Basis {
  from_ns_text: string;
  lanes: TimelineLane[];
  ops: string[];
  classes: string[];
  reasons: string[];
  wakes: [number, number, number][];
  lanes_left_out: number;
}
