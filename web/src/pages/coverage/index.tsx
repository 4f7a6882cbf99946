/** What was seen, sampled and lost, and what the tracer itself took. */
import type { SeenAndLost, TracerSession } from "../../answers";
import { Answered, useAnswer } from "../../parts/asked";
import { Empty, Panel } from "../../parts/panel";
import { part, type Query } from "../../route";
import { clock, count, duration, share } from "../../units";
import { Cost } from "./cost";
import { Rungs } from "./rungs";
import { Losses, Sampled, Walks } from "./seen";

export function CoveragePage({ query }: { query: Query }) {
  const asked = useAnswer("coverage", { ...part(query), limit: 1000 });
  return (
    <>
      <h1 class="visually-hidden">Coverage and cost</h1>
      <Answered of={asked} what="what was seen and lost">
        {(answer) => (
          <>
            <Overall answer={answer} />
            <Losses answer={answer} />
            <Sampled answer={answer} />
            <Cost answer={answer} />
            <Rungs answer={answer} />
            <Walks answer={answer} />
            <Notes answer={answer} />
          </>
        )}
      </Answered>
    </>
  );
}

function Overall({ answer }: { answer: SeenAndLost }) {
  const lost = answer.losses.reduce((sum, loss) => sum + loss.count, 0);
  const worst = answer.threads[0];
  const budget = answer.sessions.at(-1)?.budget ?? null;
  return (
    <Panel title="In short">
      <dl class="numbers">
        <Fact
          name="Records"
          value={count(answer.coverage.events)}
          more={lost === 0 ? "nothing was lost" : `${count(lost)} lost`}
        />
        <Fact
          name="Functions seen in part"
          value={count(answer.sampled.length)}
          more={answer.sampled.length === 0 ? "every call was seen" : "their numbers are estimates"}
        />
        <Fact
          name="Taken from threads"
          value={worst ? share(worst.share) : "unknown"}
          more={`of the thread that paid most${budget === null ? "" : `, of ${share(budget)} allowed`}`}
        />
        <Fact name="The tracer's CPU time" value={agentCpu(answer)} more="of one CPU" />
      </dl>
      {answer.sessions.map((session) => (
        <SessionLine key={session.id} session={session} />
      ))}
    </Panel>
  );
}

function agentCpu({ agent }: SeenAndLost): string {
  const [cpu, wall] = [
    agent.reduce((sum, each) => sum + each.cpu_ns, 0),
    agent.reduce((sum, each) => sum + each.wall_ns, 0),
  ];
  return wall > 0 ? share(cpu / wall) : "unknown";
}

function SessionLine({ session }: { session: TracerSession }) {
  const end = session.end_reason ?? (session.ended_ns === null ? "still running, or killed" : "ended");
  return (
    <p class="about">
      {clock(session.started_ns)} on {session.host}, Linux {session.kernel}, gpuwhy {session.version}. How it ended:{" "}
      {end}.
      {session.probe_cost_ns !== null &&
        ` A traced call costs ${duration(session.probe_cost_ns)} more than an untraced one.`}
    </p>
  );
}

function Fact({ name, value, more }: { name: string; value: string; more: string }) {
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

function Notes({ answer }: { answer: SeenAndLost }) {
  return (
    <Panel title="What the tracer said" about="What it attached to, warnings, and what could not be watched.">
      {answer.warnings.length > 0 ? (
        <ul class="notes">
          {answer.warnings.map((warning, index) => (
            <li key={index}>{warning.text}</li>
          ))}
        </ul>
      ) : (
        <Empty>Nothing.</Empty>
      )}
    </Panel>
  );
}
