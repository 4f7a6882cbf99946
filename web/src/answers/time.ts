/** `waits` and `off_cpu`. */
import type { Moment } from "../exact";
import type { Basis } from "./basis";
import type { Breakdown, TimeSlice } from "./findings";

export interface StepTime {
  at_ns: Moment;
  ns: number;
  parts: TimeSlice[];
}

export interface ThreadTime extends Breakdown {
  series: { from_ns: Moment; wall_ns: number; parts: TimeSlice[] }[];
  median_step: StepTime | null;
  slowest_step: StepTime | null;
  calls_recorded: number;
}

export interface WhereTimeWent extends Basis {
  bucket_length_ns: number;
  threads: ThreadTime[];
}

export interface BlockedOn {
  pid: number;
  tid: number;
  comm: string;
  reason: string;
  target_kind: string | null;
  target: string | null;
  woken_by_pid: number | null;
  woken_by_tid: number | null;
  woken_by_comm: string | null;
  count: number;
  blocked_ns: number;
  max_ns: number;
  max_ref: string;
  file: string | null;
  line: number | null;
  function: string | null;
  waker_file: string | null;
  waker_line: number | null;
  waker_function: string | null;
}

export interface Taker {
  pid: number;
  tid: number;
  comm: string;
  taken_by_pid: number;
  taken_by_tid: number;
  taken_by_comm: string;
  ns: number;
  records: number;
}

export interface OffCpuTimes extends Basis {
  waits: BlockedOn[];
  takers: Taker[];
  next: string | null;
}
