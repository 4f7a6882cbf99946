/** The largest stacks as a table, for those who would rather read than point. */
import type { RankedStack, RankedStacks } from "../../answers";
import { Frames } from "../../parts/frames";
import { Panel } from "../../parts/panel";
import { Location } from "../../parts/place";
import { counted, duration, share } from "../../units";

const SHOWN = 10;

export function TopStacks({ answer }: { answer: RankedStacks }) {
  return (
    <Panel title="Largest stacks" about="By the user's own line.">
      <ol class="top-stacks">
        {answer.stacks.slice(0, SHOWN).map((stack, index) => (
          <li key={index}>
            <Stack stack={stack} />
          </li>
        ))}
      </ol>
    </Panel>
  );
}

function Stack({ stack }: { stack: RankedStack }) {
  const site = stack.site ?? stack.frames[0];
  return (
    <details>
      <summary>
        <strong>{share(stack.share)}</strong> {stack.ns === null ? counted(stack.count, "sample") : duration(stack.ns)}{" "}
        {site && (
          <Location file={site.file ?? site.module} line={site.line} function={site.function} kind={site.kind} />
        )}
      </summary>
      <Frames title="Innermost first" stack={{ ...stack, site: null }} />
    </details>
  );
}
