/** A histogram of durations, small enough for a table's cell. Lengths are on a logarithmic scale. */
import { duration } from "../units";

const [WIDTH, HEIGHT] = [132, 26];

export interface Limits {
  readonly least: number;
  readonly most: number;
}

/** The scale that a whole column shares, so that rows can be compared. */
export function limitsOf(histograms: readonly (readonly (readonly [number, number])[])[]): Limits {
  const bounds = histograms.flatMap((histogram) => histogram.map(([upper]) => upper));
  return { least: Math.max(1, Math.min(...bounds, Infinity)), most: Math.max(...bounds, 10) };
}

export function Histogram({
  of,
  limits,
  label,
}: {
  of: readonly (readonly [number, number])[];
  limits: Limits;
  label: string;
}) {
  const span = Math.log(limits.most / limits.least) || 1;
  const columns = new Float64Array(33);
  for (const [upper, calls] of of) columns[Math.round((Math.log(upper / limits.least) / span) * 32)]! += calls;
  const most = Math.max(...columns);
  const step = WIDTH / columns.length;
  return (
    <svg
      class="histogram"
      role="img"
      aria-label={label}
      width={WIDTH}
      height={HEIGHT}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
    >
      <title>
        {label}, from {duration(limits.least)} to {duration(limits.most)}
      </title>
      <path class="ground" d={`M0 ${HEIGHT - 0.5}H${WIDTH}`} />
      {[...columns].map((calls, index) => {
        if (calls === 0) return null;
        const height = Math.max(1.5, Math.sqrt(calls / most) * (HEIGHT - 2));
        return <rect key={index} x={index * step} y={HEIGHT - height} width={step - 0.6} height={height} />;
      })}
    </svg>
  );
}
