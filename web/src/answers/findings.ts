/** `findings`: why the GPU waits. */
import type { Moment } from "../exact";
import type { Coverage, Span } from "./basis";

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
