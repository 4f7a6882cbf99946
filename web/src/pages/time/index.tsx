/** Where the time of the threads that feed a GPU went: in all, over time, step by step, and off the CPU by reason. */
import { useMemo } from "preact/hooks";
import type { ThreadTime, WhereTimeWent } from "../../answers";
import { Answered, useAnswer } from "../../parts/asked";
import { BasisNote } from "../../parts/basis";
import { Chart, type Series } from "../../parts/chart";
import { Empty, Panel } from "../../parts/panel";
import { PartList, ThreadBars } from "../../parts/thread_bars";
import { partColour, partOrder } from "../../parts/time_parts";
import { part, type Query } from "../../route";
import { counted, date, duration, share, who } from "../../units";
import { OffCpu } from "./off_cpu";

export function Time({ query }: { query: Query }) {
  const asked = useAnswer("waits", part(query));
  return (
    <>
      <h1 class="visually-hidden">Where the time went</h1>
      <Answered of={asked} what="the threads' clocks">
        {(answer) => <Went answer={answer} />}
      </Answered>
      <OffCpu query={query} />
    </>
  );
}

function Went({ answer }: { answer: WhereTimeWent }) {
  const { threads } = answer;
  return (
    <>
      <Panel title="Where the time went" about="Of each thread that feeds a GPU. The parts add up to its wall time.">
        {threads.length > 0 ? <ThreadBars threads={threads} /> : <Empty>No thread launched work on a GPU.</Empty>}
      </Panel>
      {threads.map((thread) => (
        <OverTime key={thread.tid} thread={thread} bucket={answer.bucket_length_ns} />
      ))}
      <BasisNote coverage={answer.coverage} />
    </>
  );
}

function OverTime({ thread, bucket }: { thread: ThreadTime; bucket: number }) {
  const { x, series } = useMemo(() => stacked(thread), [thread]);
  const name = who(thread.comm, thread.pid, thread.tid);
  return (
    <Panel title={`${name} over time`} about={`Its time in each ${duration(bucket)}, in the colours above.`}>
      {x.length > 1 ? (
        <Chart
          label={`What the time of ${name} went to, over time`}
          x={x}
          isTime
          isStacked
          isStepped
          series={series}
          format={share}
        />
      ) : (
        <Empty>The trace is too short for a chart.</Empty>
      )}
      <Steps thread={thread} />
    </Panel>
  );
}

/** Shares of each bucket, so that one that was cut short is not a dip. */
function stacked(thread: ThreadTime): { x: number[]; series: Series[] } {
  const names = [...new Set(thread.series.flatMap((bucket) => bucket.parts.map((part) => part.name)))];
  names.sort((a, b) => partOrder(a) - partOrder(b));
  const x = thread.series.map((bucket) => date(bucket.from_ns).getTime() / 1000);
  const series = names.map((name) => ({
    title: name,
    colour: partColour(name),
    values: thread.series.map(
      (bucket) => (bucket.parts.find((part) => part.name === name)?.ns ?? 0) / Math.max(1, bucket.wall_ns),
    ),
  }));
  return { x, series };
}

function Steps({ thread }: { thread: ThreadTime }) {
  const { steps, median_step, slowest_step } = thread;
  if (!steps) return null;
  return (
    <div class="steps">
      <p>
        {counted(steps.count, "step")} {steps.count === 1 ? "was" : "were"} found: each ends with one <code>{steps.marker}</code>.
        {steps.change && ` They began to take ${steps.change.factor.toFixed(1)} times as long on the way.`}
      </p>
      {median_step && <Step title="The median step" step={median_step} />}
      {slowest_step && <Step title="The slowest step" step={slowest_step} />}
    </div>
  );
}

function Step({ title, step }: { title: string; step: NonNullable<ThreadTime["median_step"]> }) {
  return (
    <section>
      <h3>
        {title}: {duration(step.ns)}
      </h3>
      <PartList parts={step.parts.filter((part) => part.ns > 0)} wall={step.ns} />
    </section>
  );
}
