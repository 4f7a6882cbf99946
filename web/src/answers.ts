/** The answers of the server, as far as the pages read them. Names are those of the questions' fields. */
import type { Moment } from "./exact";

export interface Span {
  from_ns: Moment;
  to_ns: Moment;
}

export interface WalksEnded {
  moment: string;
  end: string;
  python_end: string;
  count: number;
}

export interface Coverage {
  events: number;
  lost: Record<string, number>;
  sampled: { op: string; fraction: number }[];
  unattached: string[];
  stacks: WalksEnded[];
}

/** What every answer is based on. */
export interface Basis {
  trace: string;
  window: Span;
  coverage: Coverage;
}

export type Evidence = "explicit" | "observed" | "inferred" | "missing";
export type Severity = "high" | "medium" | "low";

export interface Place {
  kind: string;
  file: string;
  line: number | null;
  function: string | null;
  role: "victim" | "culprit";
}

export interface Edge {
  what: string;
  evidence: Evidence;
  ns: number;
  refs: string[];
}

export interface Finding {
  id: string;
  cause: string;
  severity: Severity;
  confidence: number;
  summary: string;
  impact: { lost_ns: number; share: number; calls_affected: number; calls_total: number };
  victim: { pid: number; tid: number; comm: string; device: number | null; container: string | null };
  symptom: { op: string; p50_ns: number; p99_ns: number; worst_ns: number } | null;
  culprit: { pid: number; tid: number; comm: string; detail: string } | null;
  where: Place[];
  chain: Edge[];
  fix: string[];
}

export interface TimeSlice {
  name: string;
  ns: number;
}

export interface Steps {
  count: number;
  median_ns: number;
  p99_ns: number;
  marker: string;
  change: { at_ns: Moment; factor: number } | null;
}

export interface Breakdown {
  pid: number;
  tid: number;
  comm: string;
  wall_ns: number;
  parts: TimeSlice[];
  steps: Steps | null;
}

export interface Explanation {
  window: Span;
  coverage: Coverage;
  findings: Finding[];
  ruled_out: { cause: string; why: string }[];
  threads: Breakdown[];
}

export interface Rows {
  columns: string[];
  rows: (string | number | null)[][];
  truncated: "rows" | "bytes" | null;
}

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

export interface Process {
  pid: number;
  comm: string;
  calls: number;
}

export interface Session {
  started_ns: Moment;
  ended_ns: Moment | null;
  last_commit_ns: Moment;
  host: string;
  kernel: string;
  gpus: string[];
  driver: string | null;
  command: string;
  version: string;
  budget: number | null;
}

export interface Summary extends Basis {
  sessions: Session[];
  processes: Process[];
}

export interface Frame {
  kind: string;
  function: string;
  file: string | null;
  line: number | null;
  module: string | null;
  is_inlined: boolean;
}

export interface Stack {
  end: string | null;
  python_end: string | null;
  site: number | null;
  frames: Frame[];
}

export type RecordValue = string | number | boolean | null;

export interface FullRecord {
  ref: string;
  view: string;
  record: Record<string, RecordValue>;
  stack: Stack | null;
  waker_stack: Stack | null;
}

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

export interface Kept {
  kept: number;
  made: number;
  share: number;
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

export interface RankedStack {
  ns: number | null;
  count: number;
  share: number;
  end: string | null;
  python_end: string | null;
  site: Frame | null;
  frames: Frame[];
}

export interface RankedStacks extends Basis {
  of: string;
  total_ns: number | null;
  total_count: number;
  with_and_without_ns: number | null;
  distinct: number;
  stacks: RankedStack[];
  next: string | null;
}

export interface SourcePlace {
  file: string | null;
  line: number | null;
  function: string | null;
}

export interface FailedAllocation {
  ref: string;
  timestamp_ns: Moment;
  op: string;
  bytes: number | null;
  ret_code: number;
  place: SourcePlace;
}

export interface Pool {
  device: number | null;
  kind: string;
  live_bytes: number;
  live_count: number;
  peak_bytes: number;
  peak_at_ns: Moment;
  growth_bytes_per_minute: number | null;
  series: { at_ns: Moment; live_bytes: number; peak_bytes: number }[];
  fragmentation: { span_bytes: number; live_share: number; gaps: number; largest_gap_bytes: number } | null;
}

export interface ProcessMemory {
  pid: number;
  comm: string;
  allocations: number;
  frees: number;
  allocations_per_second: number;
  frees_per_second: number;
  failed: number;
  failures: FailedAllocation[];
  churn: { count: number; bytes: number; per_second: number; median_lifetime_ns: number | null };
  pools: Pool[];
  unknown: string[];
}

export interface MemorySite {
  pid: number;
  device: number | null;
  kind: string;
  place: SourcePlace;
  live_bytes: number;
  live_count: number;
  oldest_ns: Moment | null;
  newest_ref: string | null;
  growth_bytes_per_minute: number | null;
  allocations: number;
  allocated_bytes: number;
}

export interface MemoryUse extends Basis {
  processes: ProcessMemory[];
  sites: MemorySite[];
  next: string | null;
}

export interface TracerSession {
  id: number;
  started_ns: Moment;
  ended_ns: Moment | null;
  end_reason: string | null;
  version: string;
  host: string;
  kernel: string;
  probe_cost_ns: number | null;
  budget: number | null;
}

export interface Loss {
  reason: string;
  count: number;
  meaning: string;
  is_call: boolean;
}

export interface SeenInPart {
  op: string;
  seen: number;
  estimate: number;
  fraction: number;
  error_95: number;
}

export interface RungChange {
  at_ns: Moment;
  pid: number;
  comm: string;
  op: string;
  rung: string;
  fraction: number;
  reason: string;
}

export interface WalkTime {
  moment: string;
  end: string;
  python_end: string;
  count: number;
  walking_ns: number;
}

export interface TracedThread {
  pid: number;
  tid: number;
  comm: string;
  share: number;
  worst_share: number;
}

export interface SeenAndLost extends Basis {
  sessions: TracerSession[];
  losses: Loss[];
  sampled: SeenInPart[];
  rungs: RungChange[];
  warnings: { at_ns: Moment; text: string }[];
  stacks: WalkTime[];
  agent: { from_ns: Moment; wall_ns: number; cpu_ns: number; hooks_ns: number }[];
  threads: TracedThread[];
}
