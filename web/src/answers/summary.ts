/** `summary`: what the trace holds. */
import type { Moment } from "../exact";
import type { Basis } from "./basis";

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
