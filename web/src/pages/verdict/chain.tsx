/** The chain of evidence as a graph: from the victim to the culprit, each edge drawn by how it is known. */
import type { Edge, Evidence, Finding } from "../../answers";
import { changedAddress, pageAddress, spanAround } from "../../route";
import { counted, duration, who } from "../../units";

const MEANING: readonly (readonly [Evidence, string])[] = [
  ["explicit", "said by the program or the kernel"],
  ["observed", "seen while it happened"],
  ["inferred", "follows from what was seen"],
  ["missing", "not recorded: the claim is open"],
];

/** More claims than this are easier to read below each other. */
const MOST_BESIDE = 3;

export function ChainGraph({ finding }: { finding: Finding }) {
  const { victim, culprit, chain, impact } = finding;
  const view = viewOf(finding);
  return (
    <section class="chain" aria-label="Chain of evidence">
      <div class="chain-head">
        <h3>How it is known</h3>
        {view && <a href={pageAddress("timeline", { view })}>See it on the timeline</a>}
        <Legend shown={chain.map((edge) => edge.evidence)} />
      </div>
      <ol class={chain.length > MOST_BESIDE ? "graph tall" : "graph"}>
        <li class="node end">
          <span class="node-role">Victim</span>
          <strong>{who(victim.comm, victim.pid, victim.tid)}</strong>
          {impact.lost_ns > 0 && <span class="muted">lost {duration(impact.lost_ns)}</span>}
        </li>
        {chain.map((edge, index) => (
          <Claim key={index} edge={edge} />
        ))}
        {culprit && (
          <li class="node end culprit">
            <span class="node-role">Culprit</span>
            <strong>{culprit.pid ? who(culprit.comm, culprit.pid, culprit.tid) : culprit.comm}</strong>
            <span class="muted">{culprit.detail}</span>
          </li>
        )}
      </ol>
    </section>
  );
}

/** A span around the first record, some times as long as what it stands for. A record's number is when it began. */
function viewOf({ chain, impact }: Finding): string | null {
  const first = chain.flatMap((edge) => edge.refs)[0]?.match(/^\w+:(\d+)$/)?.[1];
  if (!first) return null;
  return spanAround(first, Math.max(1e6, impact.lost_ns / Math.max(1, impact.calls_affected)));
}

/** An edge and what it claims. The records behind it are one click away. */
function Claim({ edge }: { edge: Edge }) {
  const text = (
    <>
      <span class="claim-text">{edge.what}</span>
      <span class="claim-foot">
        {edge.ns > 0 && <span class="muted">{duration(edge.ns)}</span>}
        {edge.refs.length > 0 && <span class="records">{counted(edge.refs.length, "record")}</span>}
      </span>
    </>
  );
  return (
    <li class="claim">
      <Line evidence={edge.evidence} />
      {edge.refs.length > 0 ? (
        <a class="node" href={changedAddress({ record: edge.refs.join(",") })}>
          {text}
        </a>
      ) : (
        <div class="node">{text}</div>
      )}
    </li>
  );
}

/** Drawn left to right, and turned by the style sheet on narrow screens. */
function Line({ evidence }: { evidence: Evidence }) {
  return (
    <span class="edge">
      <span class={`edge-word ${evidence}`}>{evidence}</span>
      <svg class={`line ${evidence}`} viewBox="0 0 64 12" width="64" height="12" aria-hidden="true">
        <path class="stroke" d="M1 6H54" />
        <path class="tip" d="M54 1.5 63 6l-9 4.5z" />
        {evidence === "missing" && <path class="cross" d="m23 1 10 10m0-10L23 11" />}
      </svg>
    </span>
  );
}

function Legend({ shown }: { shown: Evidence[] }) {
  return (
    <ul class="legend" aria-label="What the lines mean">
      {MEANING.filter(([evidence]) => shown.includes(evidence)).map(([evidence, meaning]) => (
        <li key={evidence}>
          <svg class={`line ${evidence}`} viewBox="0 0 28 8" width="28" height="8" aria-hidden="true">
            <path class="stroke" d="M1 4H27" />
          </svg>
          <strong>{evidence}</strong> {meaning}
        </li>
      ))}
    </ul>
  );
}
