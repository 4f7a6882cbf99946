/** GPU memory: what is live, how it grew, and which lines allocated it. */
import type { ProcessMemory } from "../../answers";
import { Answered, useAnswer } from "../../parts/asked";
import { BasisNote } from "../../parts/basis";
import { Empty, Panel } from "../../parts/panel";
import { part, type Query } from "../../route";
import { bytes, count, counted, duration, share, who } from "../../units";
import { PoolChart } from "./pool_chart";
import { Sites } from "./sites";
import { Failures } from "./failures";

export function Memory({ query }: { query: Query }) {
  const asked = useAnswer("memory", { ...part(query), limit: 200 });
  return (
    <>
      <h1 class="visually-hidden">GPU memory</h1>
      <Answered of={asked} what="the allocations">
        {(answer) => (
          <>
            {answer.processes.length === 0 && (
              <Panel title="GPU memory">
                <Empty>No process allocated or freed GPU memory in this part of the trace.</Empty>
              </Panel>
            )}
            {answer.processes.map((process) => (
              <OfProcess key={process.pid} process={process} />
            ))}
            {answer.sites.length > 0 && <Sites sites={answer.sites} />}
            <BasisNote coverage={answer.coverage} />
          </>
        )}
      </Answered>
    </>
  );
}

function OfProcess({ process }: { process: ProcessMemory }) {
  const { pools } = process;
  const sum = (of: (pool: ProcessMemory["pools"][number]) => number) =>
    pools.reduce((total, pool) => total + of(pool), 0);
  const growth = sum((pool) => pool.growth_bytes_per_minute ?? 0);
  return (
    <Panel
      title={who(process.comm, process.pid)}
      about="Memory it got from the driver. What a framework hands out of its own cache is not seen."
    >
      <dl class="numbers">
        <Number
          name="Live now"
          value={bytes(sum((pool) => pool.live_bytes))}
          more={counted(sum((pool) => pool.live_count), "allocation")}
        />
        <Number
          name="At its peak"
          value={bytes(Math.max(0, ...pools.map((pool) => pool.peak_bytes)))}
          more="of one GPU"
        />
        <Number
          name="Growth"
          value={growth === 0 ? "none" : `${growth > 0 ? "+" : ""}${bytes(growth)} / min`}
          more="after it warmed up"
        />
        <Number
          name="Allocated and freed"
          value={`${rate(process.allocations_per_second)} / s`}
          more={churnText(process)}
        />
        <Number
          name="Refused"
          value={count(process.failed)}
          more={process.failed > 0 ? "allocations failed" : "no allocation failed"}
        />
      </dl>
      <PoolChart pools={pools} />
      {pools.map(
        (pool) =>
          pool.fragmentation &&
          pool.fragmentation.gaps > 0 && (
            <p key={`${pool.kind}${pool.device}`} class="about">
              {share(pool.fragmentation.live_share)} of the addresses from the lowest to the highest are live; the
              largest of {count(pool.fragmentation.gaps)} gaps is {bytes(pool.fragmentation.largest_gap_bytes)}.
            </p>
          ),
      )}
      <Failures process={process} />
      {process.unknown.length > 0 && (
        <ul class="notes muted">
          {process.unknown.map((text) => (
            <li key={text}>{text}</li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function churnText({ churn }: ProcessMemory): string {
  if (churn.count === 0) return "nothing is freed soon after";
  const kept = churn.median_lifetime_ns === null ? "" : `, kept ${duration(churn.median_lifetime_ns)}`;
  return `${count(churn.count)} were freed again${kept}`;
}

function rate(value: number): string {
  return value >= 10 ? count(value) : value.toFixed(1);
}

function Number({ name, value, more }: { name: string; value: string; more: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {value}
        <small>{more}</small>
      </dd>
    </div>
  );
}
