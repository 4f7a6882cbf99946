/** How long each GPU had nothing to do, and what the host did meanwhile. */
import type { Contradiction, Explanation, GpuTime } from "../../answers";
import { Panel } from "../../parts/panel";
import { share } from "../../units";

export function Gpus({ explanation }: { explanation: Explanation }) {
  if (explanation.gpus.length === 0) return null;
  return (
    <Panel title="The GPU's time" about="As far as the host's calls tell: from a wait that returned to the next work.">
      {explanation.gpus.map((gpu) => (
        <Gpu key={`${gpu.host} ${gpu.device}`} gpu={gpu} explanation={explanation} />
      ))}
    </Panel>
  );
}

function Gpu({ gpu, explanation }: { gpu: GpuTime; explanation: Explanation }) {
  const of = gpu.phase === "steady" ? "of its steady state" : "of the time";
  const [least, most] = gpu.interval;
  const withOthers = gpu.communicating_ns / Math.max(gpu.busy_ns + gpu.idle_ns + gpu.unknown_ns, 1);
  return (
    <>
      <p>
        GPU {gpu.device}
        {gpu.host ? ` of ${gpu.host}` : ""} was idle <b>{share(gpu.idle_share)}</b> {of}, between {share(least)} and {share(most)} (
        {gpu.known_by}).
      </p>
      <ul>
        {gpu.idle_because.slice(0, 4).map((because) => (
          <li key={because.why + (because.finding ?? "")}>
            {share(because.share_of_idle * gpu.idle_share)}: {because.why}
            {causeOf(explanation, because.finding)}
          </li>
        ))}
        {withOthers >= 0.01 && <li>{share(withOthers)}: busy, but waiting for other ranks at least</li>}
      </ul>
      {gpu.contradiction && <Contradictory contradiction={gpu.contradiction} />}
    </>
  );
}

function Contradictory({ contradiction }: { contradiction: Contradiction }) {
  const between = ([least, most]: [number, number]) => `${share(least)} to ${share(most)}`;
  return (
    <p>
      Calls tell {between(contradiction.by_calls)} idle, the GPU itself says {between(contradiction.by_itself)}: {contradiction.because}.
    </p>
  );
}

function causeOf(explanation: Explanation, id: string | null): string {
  const finding = explanation.findings.find((one) => one.id === id);
  return finding ? ` (${finding.cause})` : "";
}
