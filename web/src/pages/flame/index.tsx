/** Flame graphs: of calls, of waits, of those who ended waits, and of threads that ran. */
import { useMemo } from "preact/hooks";
import type { RankedStacks } from "../../answers";
import { Answered, useAnswer } from "../../parts/asked";
import { BasisNote } from "../../parts/basis";
import { Choice, Empty, Panel } from "../../parts/panel";
import { change, part, type Query } from "../../route";
import { count, counted, duration, share } from "../../units";
import { Graph, matcher } from "./graph";
import { matching, tree } from "./tree";
import { TopStacks } from "./top";

const KINDS = [
  ["calls", "In calls"],
  ["waits", "Waiting"],
  ["wakers", "Who ended waits"],
  ["running", "Running"],
] as const;
type Kind = (typeof KINDS)[number][0];

const ABOUT: Readonly<Record<Kind, string>> = {
  calls:
    "What called into the GPU's libraries, by how long the calls took. Slow calls have stacks, and a sample of the others.",
  waits: "Where threads were blocked, by how long.",
  wakers: "What those who ended waits were doing, by how long the others were blocked.",
  running: "Where threads ran, by how often they were seen there.",
};

const MOST_STACKS = 1000;

export function Flame({ query }: { query: Query }) {
  const of = KINDS.find(([kind]) => kind === query.of)?.[0] ?? "calls";
  const asked = useAnswer("stacks", { ...part(query), of, limit: MOST_STACKS });
  const choice = (
    <Choice
      label="Stacks of"
      of={KINDS}
      value={of}
      onChoose={(of) => change({ of: of === "calls" ? "" : of, path: "" })}
    />
  );
  return (
    <>
      <Panel title="Flame graph" about={ABOUT[of]} aside={choice}>
        <Answered of={asked} what="the stacks">
          {(answer) => <Stacks answer={answer} query={query} />}
        </Answered>
      </Panel>
      {asked.answer && asked.answer.stacks.length > 0 && <TopStacks answer={asked.answer} />}
    </>
  );
}

function Stacks({ answer, query }: { answer: RankedStacks; query: Query }) {
  const unit = answer.total_ns === null ? "samples" : answer.of === "calls" ? "calls" : "waits";
  const root = useMemo(() => tree(answer.stacks, (stack) => stack.ns ?? stack.count), [answer]);
  const search = query.search ?? "";
  const found = matcher(search);
  if (answer.stacks.length === 0) return <Empty>No stack of this kind was taken in this part of the trace.</Empty>;
  return (
    <>
      <div class="tools">
        <label>
          <span class="visually-hidden">Search for a function or a file</span>
          <input
            type="search"
            placeholder="Search functions and files"
            value={search}
            onInput={(event) => change({ search: event.currentTarget.value }, "replace")}
          />
        </label>
        {found && <span role="status">{share(matching(root, found) / Math.max(1e-9, root.value))} match</span>}
        {query.path && (
          <button type="button" class="small" onClick={() => change({ path: "" })}>
            Show all
          </button>
        )}
        <span class="muted">{totals(answer)}</span>
      </div>
      <Graph root={root} path={query.path} search={search} unit={unit} />
      <p class="part-list flame-legend">
        {(["python", "native", "jit", "kernel"] as const).map((kind) => (
          <span key={kind}>
            <span class="swatch" style={{ background: `var(--frame-${kind})` }} aria-hidden="true" />
            {kind === "python" ? "Python" : kind === "jit" ? "compiled on the fly" : kind}
          </span>
        ))}
        <span>
          <span class="swatch hatched" aria-hidden="true" />
          callers not known
        </span>
      </p>
      <BasisNote coverage={answer.coverage} />
    </>
  );
}

/** How much of the time the picture shows. */
function totals(answer: RankedStacks): string {
  const shown = answer.next
    ? `the ${count(answer.stacks.length)} largest of ${counted(answer.distinct, "stack")}`
    : counted(answer.distinct, "stack");
  if (answer.total_ns === null) return `${counted(answer.total_count, "sample")}, ${shown}`;
  const all = answer.with_and_without_ns;
  const part = all ? ` (${share(answer.total_ns / Math.max(1, all))} of the time; the rest has no stack)` : "";
  return `${duration(answer.total_ns)}${part}, ${shown}`;
}
