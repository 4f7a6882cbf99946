/** `coverage`: what was seen, lost, and what the tracer took. */
import type { Moment } from "../exact";
import type { Basis } from "./basis";

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
