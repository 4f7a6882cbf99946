/** Rows as a table, and the numeric columns as a chart. */
import { useMemo, useState } from "preact/hooks";
import type { Rows } from "../../answers";
import { ns } from "../../exact";
import { Chart } from "../../parts/chart";
import { Choice, Empty } from "../../parts/panel";
import { Table, type Column } from "../../parts/table";
import { counted, date } from "../../units";

type Cell = Rows["rows"][number][number];
type Row = Rows["rows"][number];

const COLOURS = ["part-launch", "part-input", "part-code", "part-memory", "part-cpu"];

export function Result({ rows }: { rows: Rows }) {
  const [shown, setShown] = useState<"table" | "chart">("table");
  const plot = useMemo(() => plotted(rows), [rows]);
  return (
    <div class="result">
      <div class="tools">
        <span class="muted">
          {counted(rows.rows.length, "row")}{rows.truncated ? `, cut at the limit of ${rows.truncated}` : ""}
        </span>
        {plot && (
          <Choice
            label="Show as"
            of={[
              ["table", "Table"],
              ["chart", "Chart"],
            ]}
            value={shown}
            onChoose={setShown}
          />
        )}
      </div>
      {shown === "chart" && plot ? <Plot plot={plot} /> : <Grid rows={rows} />}
    </div>
  );
}

function Grid({ rows }: { rows: Rows }) {
  if (rows.rows.length === 0) return <Empty>No row matches.</Empty>;
  const columns: Column<Row>[] = rows.columns.map((title, at) => ({
    title,
    cell: (row) => cellText(row[at] ?? null),
    key: (row) => sortable(row[at] ?? null),
    numeric: rows.rows.every((row) => isNumber(row[at] ?? null)),
  }));
  return <Table label="Rows" columns={columns} rows={rows.rows} rowKey={(_, index) => String(index)} />;
}

function cellText(cell: Cell): string {
  if (cell === null) return "NULL";
  return typeof cell === "number" && !Number.isInteger(cell) ? String(Number(cell.toPrecision(6))) : String(cell);
}

function sortable(cell: Cell): number | string {
  return isNumber(cell) && cell !== null ? Number(cell) : (cell ?? "");
}

/** Long integers arrive as text. */
function isNumber(cell: Cell): boolean {
  return cell === null || typeof cell === "number" || /^-?\d{16,20}$/.test(cell);
}

interface Plotted {
  readonly isTime: boolean;
  readonly xTitle: string;
  readonly x: number[];
  readonly labels: string[] | null;
  readonly series: { title: string; colour: string; values: (number | null)[] }[];
}

/** The first column is the axis; every other column of numbers is a line. */
function plotted(rows: Rows): Plotted | null {
  const numeric = rows.columns.map((_, at) => rows.rows.every((row) => isNumber(row[at] ?? null)));
  const lines = rows.columns.map((title, at) => ({ title, at })).filter(({ at }) => at > 0 && numeric[at]);
  if (rows.rows.length < 2 || lines.length === 0) return null;
  const isTime = /(^|_)(timestamp|time|bucket|at|from|started)_ns$/.test(rows.columns[0] ?? "") && numeric[0] === true;
  const order = numeric[0] ? [...rows.rows].sort((a, b) => Number(a[0]) - Number(b[0])) : rows.rows;
  const x = order.map((row, index) => (isTime ? seconds(row[0] ?? 0) : numeric[0] ? Number(row[0]) : index));
  const labels = numeric[0] ? null : order.map((row) => String(row[0] ?? ""));
  const series = lines.slice(0, COLOURS.length).map(({ title, at }, index) => ({
    title,
    colour: COLOURS[index]!,
    values: order.map((row) => (row[at] === null ? null : Number(row[at]))),
  }));
  return { isTime, xTitle: rows.columns[0] ?? "", x, labels, series };
}

/** With the fraction that a number of milliseconds would lose. */
function seconds(moment: string | number): number {
  return date(moment).getTime() / 1000 + Number(ns(moment) % 1_000_000n) / 1e9;
}

function Plot({ plot }: { plot: Plotted }) {
  const { labels } = plot;
  const formatX = labels ? { formatX: (at: number) => labels[at] ?? "" } : {};
  return (
    <>
      <p class="part-list">
        {plot.series.map((each) => (
          <span key={each.title}>
            <span class="swatch" style={{ background: `var(--${each.colour})` }} aria-hidden="true" />
            {each.title}
          </span>
        ))}
        <span class="muted">by {plot.xTitle}</span>
      </p>
      <Chart
        label="The numbers as lines"
        x={plot.x}
        isTime={plot.isTime}
        series={plot.series}
        height={320}
        format={compact}
        {...formatX}
      />
    </>
  );
}

function compact(value: number): string {
  return value.toLocaleString("en-US", { notation: "compact", maximumSignificantDigits: 4 });
}
