/** What was lost and why, what was seen in part, and how walks over stacks ended. */
import type { Loss, SeenAndLost, SeenInPart, WalkTime } from "../../answers";
import { endMeaning } from "../../parts/frames";
import { Empty, Panel } from "../../parts/panel";
import { Table, type Column } from "../../parts/table";
import { count, duration, share } from "../../units";

const LOSSES: readonly Column<Loss>[] = [
  { title: "How many", numeric: true, cell: (row) => count(row.count), key: (row) => row.count },
  { title: "What", cell: (row) => row.meaning },
  { title: "Reason", cell: (row) => row.reason, key: (row) => row.reason },
  { title: "Counted nonetheless", cell: (row) => (row.is_call ? "yes" : "no") },
];

export function Losses({ answer }: { answer: SeenAndLost }) {
  return (
    <Panel title="Lost" about="Of the whole trace. Every buffer counts what it drops.">
      {answer.losses.length > 0 ? (
        <Table label="Losses" columns={LOSSES} rows={answer.losses} rowKey={(row) => row.reason} />
      ) : (
        <Empty>Nothing was lost.</Empty>
      )}
    </Panel>
  );
}

const SAMPLED: readonly Column<SeenInPart>[] = [
  { title: "Function", cell: (row) => row.op, key: (row) => row.op },
  { title: "Seen", numeric: true, cell: (row) => count(row.seen), key: (row) => row.seen },
  {
    title: "Estimated",
    numeric: true,
    cell: (row) => `≈ ${count(row.estimate)} ± ${count(row.error_95)}`,
    key: (row) => row.estimate,
  },
  { title: "Share seen", numeric: true, cell: (row) => share(row.fraction), key: (row) => row.fraction },
];

export function Sampled({ answer }: { answer: SeenAndLost }) {
  if (answer.sampled.length === 0) return null;
  return (
    <Panel
      title="Seen in part"
      about="Functions that were watched in bursts, to keep to the budget. Numbers are scaled up, with the error at 95 %."
    >
      <Table label="Functions seen in part" columns={SAMPLED} rows={answer.sampled} rowKey={(row) => row.op} />
    </Panel>
  );
}

const MOMENTS: Readonly<Record<string, string>> = {
  call: "in a call",
  wait: "at a wait",
  waker: "when ending a wait",
  sample: "while running",
};

const WALKS: readonly Column<WalkTime>[] = [
  { title: "Taken", cell: (row) => MOMENTS[row.moment] ?? row.moment, key: (row) => row.moment },
  { title: "Walks", numeric: true, cell: (row) => count(row.count), key: (row) => row.count },
  { title: "How it ended", cell: ended, key: ended },
  { title: "Python's part", cell: (row) => row.python_end.replaceAll("_", " "), key: (row) => row.python_end },
  {
    title: "Each took",
    numeric: true,
    cell: (row) => duration(row.walking_ns / Math.max(1, row.count)),
    key: (row) => row.walking_ns / Math.max(1, row.count),
  },
];

function ended(row: WalkTime): string {
  const meaning = endMeaning(row.end);
  return meaning ? `${row.end.replaceAll("_", " ")}: ${meaning}` : row.end.replaceAll("_", " ");
}

export function Walks({ answer }: { answer: SeenAndLost }) {
  if (answer.stacks.length === 0) return null;
  const all = answer.stacks.reduce((sum, walk) => sum + walk.count, 0);
  const whole = answer.stacks.filter((walk) => walk.end === "complete").reduce((sum, walk) => sum + walk.count, 0);
  return (
    <Panel
      title="How walks over stacks ended"
      about={`${share(whole / Math.max(1, all))} of ${count(all)} walks reached the end of the stack.`}
    >
      <Table
        label="How walks over stacks ended"
        columns={WALKS}
        rows={answer.stacks}
        rowKey={(row) => `${row.moment} ${row.end} ${row.python_end}`}
      />
    </Panel>
  );
}
