/** How closely each function was watched over time, as strips, and why that changed. */
import { useMemo } from "preact/hooks";
import type { RungChange, SeenAndLost } from "../../answers";
import { since } from "../../exact";
import { Empty, Panel } from "../../parts/panel";
import { Table, type Column } from "../../parts/table";
import { share, timeOfDay, who } from "../../units";

/** From the closest look to the loosest. */
const RUNGS: readonly (readonly [string, string, string])[] = [
  ["everything", "every call kept", "part-code"],
  ["slow-only", "slow calls kept", "part-launch"],
  ["bursts", "seen in bursts", "part-cpu"],
  ["counters", "counted in bursts", "part-input"],
];

const COLUMNS: readonly Column<RungChange>[] = [
  { title: "When", class: "nowrap", cell: (row) => timeOfDay(row.at_ns), key: (row) => String(row.at_ns) },
  { title: "Function", cell: (row) => row.op, key: (row) => row.op },
  { title: "Process", cell: (row) => who(row.comm, row.pid), key: (row) => row.comm },
  {
    title: "From then on",
    cell: (row) => RUNGS.find(([rung]) => rung === row.rung)?.[1] ?? row.rung,
    key: (row) => row.rung,
  },
  { title: "Watched", numeric: true, cell: (row) => share(row.fraction), key: (row) => row.fraction },
  { title: "Why", cell: (row) => row.reason, key: (row) => row.reason },
];

export function Rungs({ answer }: { answer: SeenAndLost }) {
  const strips = useMemo(() => stripsOf(answer), [answer]);
  return (
    <Panel
      title="How closely functions were watched"
      about="The tracer looks less closely where it would cost more than the budget."
    >
      {strips.length === 0 ? (
        <Empty>Every function was watched in full all the time.</Empty>
      ) : (
        <>
          <p class="part-list">
            {RUNGS.map(([rung, text, colour]) => (
              <span key={rung}>
                <span class="swatch" style={{ background: `var(--${colour})` }} aria-hidden="true" />
                {text}
              </span>
            ))}
          </p>
          <ul class="strips" aria-hidden="true">
            {strips.map((strip) => (
              <li key={strip.title}>
                <span class="strip-title">{strip.title}</span>
                <span class="bar">
                  {strip.pieces.map((piece, index) => (
                    <span key={index} style={{ flexGrow: piece.length, background: `var(--${piece.colour})` }} />
                  ))}
                </span>
              </li>
            ))}
          </ul>
          <Table
            label="Changes in how closely functions were watched"
            columns={COLUMNS}
            rows={answer.rungs}
            rowKey={(row, index) => `${row.at_ns} ${index}`}
          />
        </>
      )}
    </Panel>
  );
}

interface Strip {
  readonly title: string;
  readonly pieces: { length: number; colour: string }[];
}

const MOST_STRIPS = 20;

/** A function is watched in full until its first change. */
function stripsOf({ rungs, window }: SeenAndLost): Strip[] {
  const all = since(window.from_ns, window.to_ns);
  const byFunction = new Map<string, RungChange[]>();
  for (const change of rungs) {
    const key = `${change.op}, ${who(change.comm, change.pid)}`;
    byFunction.set(key, [...(byFunction.get(key) ?? []), change]);
  }
  return [...byFunction].slice(0, MOST_STRIPS).map(([title, changes]) => {
    const starts = changes.map((change) => Math.max(0, Math.min(all, since(window.from_ns, change.at_ns))));
    const pieces = changes.map((change, index) => ({
      length: (starts[index + 1] ?? all) - starts[index]!,
      colour: RUNGS.find(([rung]) => rung === change.rung)?.[2] ?? "part-other",
    }));
    return { title, pieces: [{ length: starts[0] ?? 0, colour: RUNGS[0]![2] }, ...pieces] };
  });
}
