/** Live bytes over time, a line for each GPU and kind of memory. */
import { useMemo } from "preact/hooks";
import type { Pool } from "../../answers";
import { Chart } from "../../parts/chart";
import { bytes, date } from "../../units";

const COLOURS = ["part-memory", "part-launch", "part-code", "part-input", "part-cpu", "part-network"];

export function PoolChart({ pools }: { pools: readonly Pool[] }) {
  const { x, series } = useMemo(() => joined(pools), [pools]);
  if (x.length < 2) return null;
  return (
    <>
      <p class="part-list">
        {series.map((each) => (
          <span key={each.title}>
            <span class="swatch" style={{ background: `var(--${each.colour})` }} aria-hidden="true" />
            {each.title}
          </span>
        ))}
      </p>
      <Chart label="Live GPU memory over time" x={x} isTime isStepped isBytes series={series} format={bytes} />
    </>
  );
}

/** Lines that change at different times share an axis; each keeps its value until its next change. */
function joined(pools: readonly Pool[]) {
  const shown = pools.slice(0, COLOURS.length);
  const second = (pool: Pool) => pool.series.map((point) => date(point.at_ns).getTime() / 1000);
  const x = [...new Set(shown.flatMap(second))].sort((a, b) => a - b);
  const series = shown.map((pool, index) => {
    const at = second(pool);
    let next = 0;
    const values = x.map((time) => {
      while (next < at.length && at[next]! <= time) next += 1;
      return next > 0 ? pool.series[next - 1]!.live_bytes : null;
    });
    return { title: titleOf(pool), colour: COLOURS[index]!, values };
  });
  return { x, series };
}

export function titleOf(pool: { device: number | null; kind: string }): string {
  const kind = { device: "memory", host: "pinned host memory", managed: "managed memory" }[pool.kind] ?? pool.kind;
  return pool.device === null ? (pool.kind === "device" ? "GPU memory" : kind) : `GPU ${pool.device} ${kind}`;
}
