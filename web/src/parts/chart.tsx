/** A chart over time or over any number, drawn by uPlot: lines, or areas stacked on each other. */
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { colour, useTheme } from "../theme";

export interface Series {
  readonly title: string;
  /** A colour's name in the style sheet. */
  readonly colour: string;
  readonly values: readonly (number | null)[];
}

export interface ChartProps {
  readonly label: string;
  /** Seconds since 1970 when `isTime`. */
  readonly x: readonly number[];
  readonly isTime?: boolean;
  readonly series: readonly Series[];
  readonly isStacked?: boolean;
  readonly isStepped?: boolean;
  readonly height?: number;
  readonly format: (value: number) => string;
  /** Bytes are read in powers of two, so their marks are as well. */
  readonly isBytes?: boolean;
  readonly formatX?: (value: number) => string;
}

export function Chart(props: ChartProps) {
  const holder = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  const [pointed, setPointed] = useState<number | null>(null);
  const height = props.height ?? 240;
  useEffect(() => {
    const element = holder.current;
    if (!element) return undefined;
    const plot = new uPlot(options(props, element.clientWidth, height, setPointed), dataOf(props), element);
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [theme, props.x, props.series, height]);
  return (
    <div class="chart">
      <div role="img" aria-label={props.label} ref={holder} style={{ minHeight: `${height}px` }} />
      <p class="readout">{pointed === null ? "" : readout(props, pointed)}</p>
    </div>
  );
}

/** The values under the pointer, the largest first. */
function readout({ x, series, isTime, format, formatX }: ChartProps, at: number): string {
  const shown = series.map((each) => ({ title: each.title, value: each.values[at] ?? null }));
  const known = shown
    .filter(({ value }) => value !== null && value !== 0)
    .sort((a, b) => (b.value ?? 0) - (a.value ?? 0));
  const where = x[at] ?? 0;
  const name = isTime
    ? new Date(where * 1000).toLocaleTimeString(undefined, { hour12: false })
    : (formatX?.(where) ?? String(where));
  return `${name}: ${known.map(({ title, value }) => `${title} ${format(value ?? 0)}`).join(", ") || "nothing"}`;
}

/** Stacked areas are drawn from the top one down, each over the sum of those below it. */
function dataOf({ x, series, isStacked }: ChartProps): uPlot.AlignedData {
  if (!isStacked) return [[...x], ...series.map((each) => [...each.values])];
  const sum = x.map(() => 0);
  const stacked = series.map((each) => each.values.map((value, index) => (sum[index]! += value ?? 0)));
  return [[...x], ...stacked.reverse()];
}

function options(
  props: ChartProps,
  width: number,
  height: number,
  onPoint: (at: number | null) => void,
): uPlot.Options {
  const [soft, line] = [colour("text-soft"), colour("line")];
  const axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  const { format, formatX } = props;
  const xAxis: uPlot.Axis = formatX ? { ...axis, values: (_, marks) => marks.map(formatX) } : axis;
  const marks = props.isBytes ? { incrs: Array.from({ length: 50 }, (_, power) => 2 ** power) } : {};
  const shown = props.isStacked ? [...props.series].reverse() : props.series;
  return {
    width,
    height,
    legend: { show: false },
    hooks: { setCursor: [(plot) => onPoint(plot.cursor.idx ?? null)] },
    cursor: { y: false, points: { show: false } },
    scales: { x: { time: props.isTime ?? false }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.05 : 1] } },
    axes: [xAxis, { ...axis, ...marks, size: 74, values: (_, marks) => marks.map(format) }],
    series: [{}, ...shown.map((each) => seriesOptions(each, props))],
  };
}

function seriesOptions(series: Series, { isStacked, isStepped }: ChartProps): uPlot.Series {
  const stroke = colour(series.colour);
  const stepped = isStepped && uPlot.paths.stepped ? { paths: uPlot.paths.stepped({ align: 1 }) } : {};
  const fill = isStacked ? { fill: stroke, width: 0 } : { width: 1.8 };
  return { label: series.title, stroke, points: { show: false }, ...fill, ...stepped };
}
