/** The trace's name, and a choice where several are served. */
import { useEffect, useState } from "preact/hooks";
import { servedTraces } from "../ask";
import { address, current } from "../route";

export function TraceChoice({ name }: { name: string | undefined }) {
  const [traces, setTraces] = useState<string[]>([]);
  useEffect(() => void servedTraces().then(setTraces), []);
  if (traces.length < 2) return <span class="trace-name">{name ?? " "}</span>;
  /** Another trace has other processes and another time. */
  const choose = (trace: string) => {
    location.hash = address(current().page, { trace });
  };
  return (
    <label class="trace-name">
      <span class="visually-hidden">Trace</span>
      <select value={name ?? ""} onChange={(event) => choose(event.currentTarget.value)}>
        {traces.map((trace) => (
          <option key={trace} value={trace}>
            {trace}
          </option>
        ))}
      </select>
    </label>
  );
}
