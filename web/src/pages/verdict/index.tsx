/** The start page: why the GPU waits, root cause first. */
import type { Explanation, Finding } from "../../answers";
import { Answered, useAnswer } from "../../parts/asked";
import { BasisNote } from "../../parts/basis";
import { part, type Query } from "../../route";
import { FindingCard } from "./finding";
import { Gpus } from "./gpus";
import { Healthy, RuledOut } from "./ruled_out";
import { ThreadBars } from "../../parts/thread_bars";
import { Panel } from "../../parts/panel";

export function Verdict({ query }: { query: Query }) {
  const asked = useAnswer("findings", part(query));
  return (
    <>
      <h1 class="visually-hidden">Verdict</h1>
      <Answered of={asked} what="the trace">
        {(explanation) => <Explained explanation={explanation} />}
      </Answered>
    </>
  );
}

function Explained({ explanation }: { explanation: Explanation }) {
  const { findings, ruled_out, threads, coverage } = explanation;
  const [problems, remarks] = split(findings);
  return (
    <>
      <Gpus explanation={explanation} />
      {problems.length === 0 && <Healthy explanation={explanation} />}
      {problems.map((finding, index) => (
        <FindingCard key={finding.id} finding={finding} isFirst={index === 0} />
      ))}
      {remarks.map((finding) => (
        <FindingCard key={finding.id} finding={finding} isFirst={false} />
      ))}
      {threads.length > 0 && (
        <Panel title="Where the time went" about="Of each thread that feeds a GPU. The parts add up to its wall time.">
          <ThreadBars threads={threads} />
        </Panel>
      )}
      <RuledOut causes={ruled_out} />
      <BasisNote coverage={coverage} />
    </>
  );
}

/** What to act on, and what is merely so. */
function split(findings: Finding[]): [Finding[], Finding[]] {
  const isProblem = (finding: Finding) => finding.is_problem;
  return [findings.filter(isProblem), findings.filter((finding) => !isProblem(finding))];
}
