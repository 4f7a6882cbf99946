/** `stacks` and `record`. */
import type { Basis } from "./basis";

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
