/** What it is not, and what is said when nothing is wrong. */
import type { Explanation } from "../../answers";
import { Panel } from "../../parts/panel";
import { since } from "../../exact";
import { pageAddress } from "../../route";
import { count, duration } from "../../units";

export function RuledOut({ causes }: { causes: Explanation["ruled_out"] }) {
  if (causes.length === 0) return null;
  return (
    <Panel title="What it is not" about="These causes were looked for and ruled out.">
      <ul class="ruled-out">
        {causes.map(({ cause, title, why }) => (
          <li key={cause}>
            <span class="tick" aria-hidden="true">
              ✓
            </span>
            <span>
              <strong>{title}</strong>
              <span class="muted">{why}</span>
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

export function Healthy({ explanation }: { explanation: Explanation }) {
  const { window, coverage, threads } = explanation;
  const length = duration(since(window.from_ns, window.to_ns));
  if (coverage.events === 0) {
    return (
      <article class="panel finding healthy">
        <h2>Nothing was recorded yet</h2>
        <p class="summary">There are no calls into a GPU library in this part of the trace.</p>
        <p>
          <a href={pageAddress("coverage")}>See what could be watched</a>
        </p>
      </article>
    );
  }
  return (
    <article class="panel finding healthy">
      <h2>Nothing is wrong</h2>
      <p class="summary">
        {threads.length > 0
          ? `${threads.length === 1 ? "The thread that feeds" : `The ${threads.length} threads that feed`} the GPU lost no time worth mentioning in ${length}.`
          : `No thread launched work on a GPU in ${length}.`}{" "}
        {count(coverage.events)} records were looked at.
      </p>
    </article>
  );
}
