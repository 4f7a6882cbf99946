/** Every kept call in the order of time, a page at a time: who called what, from where, and what came back. */
import { useEffect, useState } from "preact/hooks";
import type { AuditLog, AuditedCall } from "../../answers";
import { Answered, useAnswer } from "../../parts/asked";
import { Empty, Panel } from "../../parts/panel";
import { shortPlace } from "../../parts/place";
import { Table, type Column } from "../../parts/table";
import { change, part, type Query } from "../../route";
import { bytes, count, duration, share, timeOfDay, who } from "../../units";

const COLUMNS: readonly Column<AuditedCall>[] = [
  { title: "When", class: "nowrap", cell: (row) => timeOfDay(row.timestamp_ns, 1e3) },
  { title: "Thread", cell: (row) => who(row.comm, row.pid, row.tid) },
  { title: "Function", cell: (row) => row.op },
  { title: "Took", numeric: true, cell: (row) => duration(row.duration_ns) },
  { title: "What", cell: what },
  { title: "Returned", numeric: true, cell: (row) => (row.ret_code === 0 ? "ok" : `error ${row.ret_code}`) },
  { title: "Caller", cell: (row) => shortPlace(row.file, row.line) || shortPlace(row.caller, null) },
];

function what(row: AuditedCall): string {
  const size = row.bytes ? [row.direction ? `${bytes(row.bytes)} ${row.direction}` : bytes(row.bytes)] : [];
  const device = row.device === null ? [] : [`GPU ${row.device}`];
  return [...(row.kernel ? [row.kernel] : []), ...size, ...device].join(" · ");
}

const ROWS = 100;

export function AuditLog({ query }: { query: Query }) {
  const [isOpen, setOpen] = useState(false);
  const [pages, setPages] = useState<string[]>([]);
  const parameters = { ...part(query), op: query.op, limit: ROWS, after: pages.at(-1) };
  useEffect(() => setPages([]), [query.op, query.pid, query.from, query.to, query.since]);
  const asked = useAnswer(isOpen ? "audit" : null, parameters);
  const toggle = (
    <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
      {isOpen ? "Close the log" : "Open the log"}
    </button>
  );
  return (
    <Panel
      title="Log"
      about="Calls that were kept, one by one in the order of time, of the process chosen above or of all."
      aside={toggle}
    >
      {isOpen && (
        <Answered of={asked} what="the log">
          {(answer) => (
            <>
              <p class="about">
                {count(answer.kept.kept)} of {count(answer.kept.made)} calls were kept ({share(answer.kept.share)}).
              </p>
              {answer.calls.length > 0 ? (
                <Table
                  label="Log of calls"
                  columns={COLUMNS}
                  rows={answer.calls}
                  rowKey={(row) => row.ref}
                  onRow={(row) => change({ record: row.ref })}
                />
              ) : (
                <Empty>No call was kept.</Empty>
              )}
              <div class="pager">
                <button type="button" disabled={pages.length === 0} onClick={() => setPages(pages.slice(0, -1))}>
                  Earlier
                </button>
                <button
                  type="button"
                  disabled={!answer.next}
                  onClick={() => answer.next && setPages([...pages, answer.next])}
                >
                  Later
                </button>
                <span class="muted">page {pages.length + 1}</span>
              </div>
            </>
          )}
        </Answered>
      )}
    </Panel>
  );
}
