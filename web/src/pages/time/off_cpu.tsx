/** Time off the CPU: why, on what, and who ended it. */
import type { BlockedOn, Taker } from "../../answers";
import { Answered, useAnswer } from "../../parts/asked";
import { Empty, Panel } from "../../parts/panel";
import { shortPlace } from "../../parts/place";
import { Table, type Column } from "../../parts/table";
import { change, part, type Query } from "../../route";
import { count, duration, who } from "../../units";

export function OffCpu({ query }: { query: Query }) {
  const asked = useAnswer("off_cpu", part(query));
  return (
    <Panel
      title="Off the CPU"
      about="What threads were blocked on, and who ended that. The sums hold short waits too; a row opens its longest wait."
    >
      <Answered of={asked} what="the waits">
        {(answer) => (
          <>
            {answer.waits.length > 0 ? <Waits waits={answer.waits} /> : <Empty>No thread was off the CPU.</Empty>}
            {answer.takers.length > 0 && <Takers takers={answer.takers} />}
          </>
        )}
      </Answered>
    </Panel>
  );
}

const WAITS: readonly Column<BlockedOn>[] = [
  { title: "Thread", cell: (row) => who(row.comm, row.pid, row.tid), key: (row) => row.comm },
  { title: "Blocked", numeric: true, cell: (row) => duration(row.blocked_ns), key: (row) => row.blocked_ns },
  { title: "Waits", numeric: true, cell: (row) => count(row.count), key: (row) => row.count },
  { title: "Longest", numeric: true, cell: (row) => duration(row.max_ns), key: (row) => row.max_ns },
  { title: "On", cell: target, key: target },
  { title: "At", cell: (row) => place(row.file, row.line, row.function), key: (row) => row.file ?? "" },
  { title: "Ended by", cell: waker, key: waker },
  {
    title: "Which was at",
    cell: (row) => place(row.waker_file, row.waker_line, row.waker_function),
    key: (row) => row.waker_file ?? "",
  },
];

function Waits({ waits }: { waits: BlockedOn[] }) {
  return (
    <Table
      label="Time off the CPU by thread, reason and waker"
      columns={WAITS}
      rows={waits}
      rowKey={(row) => row.max_ref}
      onRow={(row) => change({ record: row.max_ref })}
    />
  );
}

function target(row: BlockedOn): string {
  const kind = row.target_kind && row.target_kind !== "other" ? row.target_kind : row.reason;
  if (!row.target) return kind;
  return row.target.startsWith(kind) ? row.target : `${kind} ${row.target}`;
}

function waker(row: BlockedOn): string {
  if (row.woken_by_pid === null) return "a timer or an interrupt";
  return who(row.woken_by_comm ?? "", row.woken_by_pid, row.woken_by_tid ?? 0);
}

function place(file: string | null, line: number | null, name: string | null): string {
  const at = shortPlace(file, line);
  return at && name ? `${at} ${name}` : at;
}

const TAKERS: readonly Column<Taker>[] = [
  { title: "Thread", cell: (row) => who(row.comm, row.pid, row.tid), key: (row) => row.comm },
  {
    title: "Its CPU was used by",
    cell: (row) => who(row.taken_by_comm, row.taken_by_pid, row.taken_by_tid),
    key: (row) => row.taken_by_comm,
  },
  { title: "For", numeric: true, cell: (row) => duration(row.ns), key: (row) => row.ns },
  { title: "Records", numeric: true, cell: (row) => count(row.records), key: (row) => row.records },
];

function Takers({ takers }: { takers: Taker[] }) {
  return (
    <section class="takers">
      <h3>Who had the CPU while a thread waited for it</h3>
      <Table
        label="Who had the CPU"
        columns={TAKERS}
        rows={takers}
        rowKey={(row) => `${row.tid}/${row.taken_by_tid}`}
      />
    </section>
  );
}
