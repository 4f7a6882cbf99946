/** What all answers have in common, and plain rows. */
import type { Moment } from "../exact";

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

export interface Kept {
  kept: number;
  made: number;
  share: number;
}

export interface SourcePlace {
  file: string | null;
  line: number | null;
  function: string | null;
}

export interface Rows {
  columns: string[];
  rows: (string | number | null)[][];
  truncated: "rows" | "bytes" | null;
}
