/** The slowest calls, of all functions or of the one that was chosen. */
import type { SlowCall } from "../../answers";
import { Answered, useAnswer } from "../../parts/asked";
import { Empty, Panel } from "../../parts/panel";
import { shortPlace } from "../../parts/place";
import { Table, type Column } from "../../parts/table";
import { change, part, type Query } from "../../route";
import { duration, timeOfDay, who } from "../../units";

const COLUMNS: readonly Column<SlowCall>[] = [
  {
    title: "When",
    class: "nowrap",
    cell: (row) => timeOfDay(row.timestamp_ns, 1e3),
    key: (row) => String(row.timestamp_ns),
  },
  { title: "Function", cell: (row) => row.op, key: (row) => row.op },
  { title: "Took", numeric: true, cell: (row) => duration(row.duration_ns), key: (row) => row.duration_ns },
  { title: "Running", numeric: true, cell: (row) => duration(row.running_ns), key: (row) => row.running_ns },
  { title: "For a CPU", numeric: true, cell: (row) => duration(row.runqueue_ns), key: (row) => row.runqueue_ns },
  { title: "Blocked", numeric: true, cell: (row) => duration(row.blocked_ns), key: (row) => row.blocked_ns },
  { title: "On", cell: (row) => row.blocked_on ?? "", key: (row) => row.blocked_on ?? "" },
  { title: "Thread", cell: (row) => who(row.comm, row.pid, row.tid), key: (row) => row.comm },
  { title: "Line", cell: (row) => shortPlace(row.file, row.line), key: (row) => row.file ?? "" },
];

export function SlowCalls({ query }: { query: Query }) {
  const { op } = query;
  const asked = useAnswer("slow_calls", { ...part(query), op, limit: 20 });
  const all = (
    <button type="button" class="small" onClick={() => change({ op: "" })}>
      Of all functions
    </button>
  );
  return (
    <Panel
      title={op ? `Slowest calls of ${op}` : "Slowest calls"}
      about="Choose a function above to see its own."
      aside={op && all}
    >
      <Answered of={asked} what="the slow calls">
        {(answer) =>
          answer.calls.length > 0 ? (
            <Table
              label="Slowest calls"
              columns={COLUMNS}
              rows={answer.calls}
              rowKey={(row) => row.ref}
              onRow={(row) => change({ record: row.ref })}
            />
          ) : (
            <Empty>No call was kept one by one.</Empty>
          )
        }
      </Answered>
    </Panel>
  );
}
