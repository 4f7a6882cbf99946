/** `memory`: GPU memory by line. */
import type { Moment } from "../exact";
import type { Basis, SourcePlace } from "./basis";

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
