/** Calls into GPU libraries: how many, how long, which were slow, and the log of one process. */
import { useMemo, useState } from "preact/hooks";
import type { CallRow, CallStatistics } from "../../answers";
import { Answered, useAnswer } from "../../parts/asked";
import { BasisNote } from "../../parts/basis";
import { Histogram, limitsOf, type Limits } from "../../parts/histogram";
import { Choice, Empty, Panel } from "../../parts/panel";
import { Table, type Column } from "../../parts/table";
import { change, part, type Query } from "../../route";
import { bytes, count, duration, share, who } from "../../units";
import { AuditLog } from "./audit";
import { SlowCalls } from "./slow";

const GROUPS = [
  ["op", "Function"],
  ["process", "Process"],
  ["thread", "Thread"],
  ["device", "GPU"],
] as const;
type Group = (typeof GROUPS)[number][0];

export function Calls({ query }: { query: Query }) {
  const by = GROUPS.find(([group]) => group === query.by)?.[0] ?? "op";
  const asked = useAnswer("calls", { ...part(query), by, limit: 500 });
  const choice = (
    <Choice
      label="A row for each"
      of={GROUPS}
      value={by}
      onChoose={(by) => change({ by: by === "op" ? "" : by, op: "" })}
    />
  );
  return (
    <>
      <Panel title="Calls" about="All calls count, also those that were not kept one by one." aside={choice}>
        <Answered of={asked} what="the calls">
          {(answer) => <Statistics answer={answer} by={answer.by} query={query} />}
        </Answered>
      </Panel>
      <SlowCalls query={query} />
      <AuditLog query={query} />
    </>
  );
}

function Statistics({ answer, by, query }: { answer: CallStatistics; by: Group; query: Query }) {
  const [filter, setFilter] = useState("");
  const limits = useMemo(() => limitsOf(answer.calls.map((row) => row.histogram)), [answer]);
  const columns = useMemo(() => columnsOf(by, limits), [by, limits]);
  const rows = answer.calls.filter((row) => nameOf(row, by).toLowerCase().includes(filter.toLowerCase()));
  const choose = (row: CallRow) => {
    if (by === "op") change({ op: row.op === query.op ? "" : (row.op ?? "") });
    else if (row.pid) change({ pid: String(row.pid), by: "" });
  };
  return (
    <>
      <div class="tools">
        <label>
          <span class="visually-hidden">Filter rows</span>
          <input
            type="search"
            placeholder="Filter"
            value={filter}
            onInput={(event) => setFilter(event.currentTarget.value)}
          />
        </label>
        <span class="muted">{answer.method}</span>
      </div>
      {rows.length > 0 ? (
        <Table
          label="Calls"
          columns={columns}
          rows={rows}
          rowKey={(row) => `${nameOf(row, by)} ${row.layer ?? ""}`}
          {...(by === "device" ? {} : { onRow: choose })}
          isChosen={(row) => by === "op" && row.op !== undefined && row.op === query.op}
        />
      ) : (
        <Empty>No calls here.</Empty>
      )}
      <BasisNote coverage={answer.coverage} />
    </>
  );
}

function nameOf(row: CallRow, by: Group): string {
  if (by === "op")
    return row.runtime_op && row.runtime_op !== row.op ? `${row.op} (${row.runtime_op})` : (row.op ?? "");
  if (by === "device") return row.device === undefined ? "names no GPU" : `GPU ${row.device}`;
  return who(row.comm ?? "", row.pid ?? 0, row.tid ?? row.pid ?? 0);
}

const TITLES: Readonly<Record<Group, string>> = { op: "Function", process: "Process", thread: "Thread", device: "GPU" };

function columnsOf(by: Group, limits: Limits): Column<CallRow>[] {
  const time = (title: string, of: (row: CallRow) => number | null, hint?: string): Column<CallRow> => ({
    title,
    numeric: true,
    cell: (row) => (of(row) ? duration(of(row) ?? 0) : ""),
    key: (row) => of(row) ?? -1,
    ...(hint ? { hint } : {}),
  });
  return [
    { title: TITLES[by], cell: (row) => nameOf(row, by), key: (row) => nameOf(row, by) },
    { title: "Calls", numeric: true, cell: Made, key: (row) => row.estimate },
    time("Total", (row) => row.sum_ns),
    time("p50", (row) => row.p50_ns, "Half of the calls are shorter"),
    time("p99", (row) => row.p99_ns, "99 of 100 calls are shorter"),
    time("Longest", (row) => row.max_ns),
    {
      title: "Durations",
      hint: "Short ones on the left, long ones on the right, on a logarithmic scale",
      cell: (row) => <Histogram of={row.histogram} limits={limits} label={`Durations of ${nameOf(row, by)}`} />,
    },
    time("Blocked", (row) => row.blocked_ns, "Time off the CPU inside these calls"),
    time("For a CPU", (row) => row.runqueue_ns, "Runnable, while others had the CPU"),
    { title: "Bytes", numeric: true, cell: (row) => (row.bytes ? bytes(row.bytes) : ""), key: (row) => row.bytes },
    { title: "Errors", numeric: true, cell: (row) => (row.errors ? count(row.errors) : ""), key: (row) => row.errors },
  ];
}

/** An estimate says so, and how far off it may be. */
function Made(row: CallRow) {
  if (row.estimate === row.count) return count(row.count);
  return (
    <>
      ≈ {count(row.estimate)}
      <br />
      <span class="error-bound" title={`${share(row.fraction)} of them were seen`}>
        ± {count(row.error)}
      </span>
    </>
  );
}
