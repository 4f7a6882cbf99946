/** Which part of the trace is looked at: all of it, or one process, or one span. It stays when pages change. */
import type { TraceSummary } from "../answers";
import { since } from "../exact";
import { change, type Query } from "../route";
import { clock, duration, timeOfDay, who } from "../units";

export function PartBar({ query, summary }: { query: Query; summary: TraceSummary | null }) {
  return (
    <div class="part-bar">
      <span>{spanText(query, summary)}</span>
      {(query.from || query.to || query.since) && (
        <button type="button" class="small" onClick={() => change({ from: "", to: "", since: "" })}>
          Show the whole trace
        </button>
      )}
      {summary && summary.processes.length > 1 && <ProcessChoice query={query} summary={summary} />}
    </div>
  );
}

function spanText(query: Query, summary: TraceSummary | null): string {
  if (query.since) return `The last ${query.since}`;
  if (!summary) return " ";
  const { from_ns, to_ns } = summary.window;
  const [from, to] = [query.from ?? from_ns, query.to ?? to_ns];
  if (!isNumber(from) || !isNumber(to)) return `From ${from} to ${to}`;
  const length = duration(since(from, to));
  return query.from || query.to ? `${length} from ${timeOfDay(from)}` : `${length} from ${clock(from)}`;
}

function isNumber(moment: string | number): boolean {
  return /^\d+$/.test(String(moment));
}

function ProcessChoice({ query, summary }: { query: Query; summary: TraceSummary }) {
  return (
    <label class="process-choice">
      <span class="visually-hidden">Process</span>
      <select value={query.pid ?? ""} onChange={(event) => change({ pid: event.currentTarget.value })}>
        <option value="">all processes</option>
        {summary.processes.map((process) => (
          <option key={process.pid} value={String(process.pid)}>
            {who(process.comm, process.pid)}
          </option>
        ))}
      </select>
    </label>
  );
}
