/** The lines that allocated what is live. */
import type { MemorySite } from "../../answers";
import { Panel } from "../../parts/panel";
import { shortPlace } from "../../parts/place";
import { Table, type Column } from "../../parts/table";
import { change } from "../../route";
import { bytes, count, timeOfDay } from "../../units";
import { titleOf } from "./pool_chart";

const COLUMNS: readonly Column<MemorySite>[] = [
  { title: "Line", cell: place, key: place },
  { title: "Live", numeric: true, cell: (row) => bytes(row.live_bytes), key: (row) => row.live_bytes },
  { title: "Allocations live", numeric: true, cell: (row) => count(row.live_count), key: (row) => row.live_count },
  { title: "Growth per minute", numeric: true, cell: growth, key: (row) => row.growth_bytes_per_minute ?? 0 },
  {
    title: "Allocated in all",
    numeric: true,
    cell: (row) => bytes(row.allocated_bytes),
    key: (row) => row.allocated_bytes,
  },
  {
    title: "Oldest",
    class: "nowrap",
    cell: (row) => (row.oldest_ns === null ? "" : timeOfDay(row.oldest_ns)),
    key: (row) => String(row.oldest_ns ?? ""),
  },
  { title: "Memory", cell: titleOf, key: titleOf },
];

export function Sites({ sites }: { sites: MemorySite[] }) {
  return (
    <Panel
      title="By line"
      about="The user's own line where its stack is known, else the file that called. A row opens its newest allocation."
    >
      <Table
        label="Live memory by line"
        columns={COLUMNS}
        rows={sites}
        rowKey={(_, index) => String(index)}
        onRow={(row) => row.newest_ref && change({ record: row.newest_ref })}
      />
    </Panel>
  );
}

function place({ place }: MemorySite): string {
  const at = shortPlace(place.file, place.line);
  if (!at) return "unknown";
  return place.function ? `${at} ${place.function}` : at;
}

function growth(row: MemorySite): string {
  const value = row.growth_bytes_per_minute;
  if (value === null) return "";
  return value === 0 ? "0" : `${value > 0 ? "+" : ""}${bytes(value)}`;
}
