/** What the tracer took: from each thread against its budget, and for itself. */
import { useMemo } from "preact/hooks";
import type { SeenAndLost, TracedThread } from "../../answers";
import { Chart } from "../../parts/chart";
import { Panel } from "../../parts/panel";
import { Table, type Column } from "../../parts/table";
import { date, share, who } from "../../units";

export function Cost({ answer }: { answer: SeenAndLost }) {
  const budget = answer.sessions.at(-1)?.budget ?? null;
  const columns = useMemo(() => columnsOf(budget), [budget]);
  if (answer.threads.length === 0 && answer.agent.length === 0) return null;
  const said = budget === null ? "No budget was set." : `The budget is ${share(budget)} of each thread's time.`;
  return (
    <Panel
      title="What tracing cost"
      about={`${said} Estimated from exact counts and what each thing costs on this machine.`}
    >
      {answer.threads.length > 0 && (
        <Table
          label="Share of each thread's time"
          columns={columns}
          rows={answer.threads}
          rowKey={(row) => `${row.pid}/${row.tid}`}
        />
      )}
      <AgentChart answer={answer} />
    </Panel>
  );
}

function columnsOf(budget: number | null): Column<TracedThread>[] {
  return [
    { title: "Thread", cell: (row) => who(row.comm, row.pid, row.tid), key: (row) => row.comm },
    { title: "Taken", numeric: true, cell: (row) => share(row.share), key: (row) => row.share },
    { title: "Its worst second", numeric: true, cell: (row) => share(row.worst_share), key: (row) => row.worst_share },
    { title: "Against the budget", cell: (row) => <Against row={row} budget={budget} /> },
  ];
}

function Against({ row, budget }: { row: TracedThread; budget: number | null }) {
  if (!budget) return <span class="muted">no budget</span>;
  const used = row.share / budget;
  return (
    <span class="against">
      <meter min={0} max={1} high={0.95} value={Math.min(1, used)} aria-label={`${share(used)} of the budget`} />
      {share(used)}
    </span>
  );
}

function AgentChart({ answer }: { answer: SeenAndLost }) {
  const { x, series } = useMemo(() => {
    const at = (of: (point: SeenAndLost["agent"][number]) => number) =>
      answer.agent.map((point) => of(point) / Math.max(1, point.wall_ns));
    return {
      x: answer.agent.map((point) => date(point.from_ns).getTime() / 1000),
      series: [
        { title: "the tracer's own process", colour: "part-launch", values: at((point) => point.cpu_ns) },
        { title: "its hooks in the kernel", colour: "part-input", values: at((point) => point.hooks_ns) },
      ],
    };
  }, [answer]);
  if (x.length < 2) return null;
  return (
    <section class="takers">
      <h3>CPU time of the tracer, as a share of one CPU</h3>
      <p class="part-list">
        {series.map((each) => (
          <span key={each.title}>
            <span class="swatch" style={{ background: `var(--${each.colour})` }} aria-hidden="true" />
            {each.title}
          </span>
        ))}
      </p>
      <Chart
        label="CPU time of the tracer over time"
        x={x}
        isTime
        isStepped
        series={series}
        format={share}
        height={200}
      />
    </section>
  );
}
