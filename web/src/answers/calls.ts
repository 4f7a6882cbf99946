/** `calls`, `slow_calls` and `audit`. */
import type { Moment } from "../exact";
import type { Basis, Kept } from "./basis";

export interface SlowCall {
  ref: string;
  timestamp_ns: Moment;
  duration_ns: number;
  running_ns: number;
  runqueue_ns: number;
  blocked_ns: number;
  pid: number;
  tid: number;
  comm: string;
  op: string;
  runtime_op: string | null;
  kernel: string | null;
  bytes: number | null;
  ret_code: number | null;
  blocked_on: string | null;
  woken_by_pid: number | null;
  woken_by_comm: string | null;
  file: string | null;
  line: number | null;
  function: string | null;
}

export interface SlowCalls extends Basis {
  calls: SlowCall[];
  next: string | null;
}

export interface CallRow {
  op?: string;
  layer?: string;
  class?: string;
  runtime_op?: string;
  pid?: number;
  tid?: number;
  comm?: string;
  device?: number;
  count: number;
  estimate: number;
  error: number;
  fraction: number;
  sum_ns: number;
  p50_ns: number | null;
  p90_ns: number | null;
  p99_ns: number | null;
  max_ns: number;
  running_ns: number;
  runqueue_ns: number;
  blocked_ns: number;
  bytes: number;
  errors: number;
  histogram: [number, number][];
}

export interface CallStatistics extends Basis {
  by: "op" | "process" | "thread" | "device";
  calls: CallRow[];
  next: string | null;
  is_exact: boolean;
  method: string;
  kept: Kept;
}

export interface AuditedCall {
  ref: string;
  timestamp_ns: Moment;
  duration_ns: number;
  pid: number;
  tid: number;
  comm: string;
  op: string;
  kernel: string | null;
  device: number | null;
  bytes: number | null;
  direction: string | null;
  ret_code: number;
  caller: string | null;
  file: string | null;
  line: number | null;
}

export interface AuditAnswer extends Basis {
  calls: AuditedCall[];
  next: string | null;
  kept: Kept;
}
