/** Allocations that were refused. */
import type { FailedAllocation, ProcessMemory } from "../../answers";
import { shortPlace } from "../../parts/place";
import { Table, type Column } from "../../parts/table";
import { change } from "../../route";
import { bytes, timeOfDay } from "../../units";

const COLUMNS: readonly Column<FailedAllocation>[] = [
  { title: "When", class: "nowrap", cell: (row) => timeOfDay(row.timestamp_ns) },
  { title: "Function", cell: (row) => row.op },
  { title: "Asked for", numeric: true, cell: (row) => (row.bytes === null ? "" : bytes(row.bytes)) },
  { title: "Returned", numeric: true, cell: (row) => `error ${row.ret_code}` },
  { title: "Line", cell: (row) => shortPlace(row.place.file, row.place.line) },
];

export function Failures({ process }: { process: ProcessMemory }) {
  if (process.failures.length === 0) return null;
  return (
    <section class="takers">
      <h3>Refused allocations, the last ones</h3>
      <Table
        label="Refused allocations"
        columns={COLUMNS}
        rows={process.failures}
        rowKey={(row) => row.ref}
        onRow={(row) => change({ record: row.ref })}
      />
    </section>
  );
}
