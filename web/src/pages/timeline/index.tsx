/** The timeline: a lane for each thread, zoomable from the whole trace down to a microsecond. */
import { useMemo } from "preact/hooks";
import type { TimelineSlice } from "../../answers";
import { Answered, useAnswer } from "../../parts/asked";
import { BasisNote } from "../../parts/basis";
import { Empty, Panel } from "../../parts/panel";
import { ns } from "../../exact";
import { part, type Query } from "../../route";
import { Board } from "./board";
import { decode } from "./slice";

const MOST_WIDTH = 2000;

export function Timeline({ query }: { query: Query }) {
  const width = useMemo(() => Math.max(300, Math.min(MOST_WIDTH, innerWidth)), []);
  const asked = useAnswer("timeline", { ...part(query), width });
  return (
    <Panel
      title="Timeline"
      about="A lane for each thread: calls above, time off the CPU below. Arrows show who ended a wait. Threads that feed the GPU come first."
    >
      <Answered of={asked} what="the timeline">
        {(answer) => <Drawn answer={answer} query={query} />}
      </Answered>
    </Panel>
  );
}

function Drawn({ answer, query }: { answer: TimelineSlice; query: Query }) {
  const origin = useMemo(() => ns(answer.from_ns_text), [answer.from_ns_text]);
  const whole = useMemo(() => decode(answer, origin), [answer, origin]);
  if (whole.lanes.length === 0) return <Empty>No thread made calls in this part of the trace.</Empty>;
  return (
    <>
      <Board whole={whole} origin={origin} query={query} />
      {answer.lanes_left_out > 0 && <p class="about">{answer.lanes_left_out} more threads are not shown.</p>}
      <BasisNote coverage={answer.coverage} />
    </>
  );
}
