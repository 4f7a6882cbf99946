/** A bar for each thread, split into what its time went to, and the same in numbers. */
import type { Breakdown, Part } from "../answers";
import { partColour, partOrder } from "./time_parts";
import { counted, duration, share, who } from "../units";

export function ThreadBars({ threads }: { threads: readonly Breakdown[] }) {
  return (
    <div class="thread-bars">
      {threads.map((thread) => (
        <ThreadBar key={`${thread.pid}/${thread.tid}`} thread={thread} />
      ))}
    </div>
  );
}

function ThreadBar({ thread }: { thread: Breakdown }) {
  const parts = thread.parts.filter((part) => part.ns > 0).sort((a, b) => partOrder(a.name) - partOrder(b.name));
  return (
    <div class="thread-bar">
      <p class="thread-name">
        <strong>{who(thread.comm, thread.pid, thread.tid)}</strong> {duration(thread.wall_ns)}
        {thread.steps && (
          <span class="muted">
            {" "}
            · {counted(thread.steps.count, "step")}, median {duration(thread.steps.median_ns)}, p99 {duration(thread.steps.p99_ns)}
          </span>
        )}
      </p>
      <div class="bar" aria-hidden="true">
        {parts.map((part) => (
          <span
            key={part.name}
            title={`${part.name}: ${duration(part.ns)}`}
            style={{ flexGrow: part.ns, background: `var(--${partColour(part.name)})` }}
          />
        ))}
      </div>
      <PartList parts={parts} wall={thread.wall_ns} />
    </div>
  );
}

/** The largest first. */
export function PartList({ parts, wall }: { parts: readonly Part[]; wall: number }) {
  const ranked = [...parts].sort((a, b) => b.ns - a.ns);
  return (
    <ul class="part-list">
      {ranked.map((part) => (
        <li key={part.name}>
          <span class="swatch" style={{ background: `var(--${partColour(part.name)})` }} aria-hidden="true" />
          {part.name} <strong>{share(part.ns / Math.max(1, wall))}</strong>
          <span class="muted">{duration(part.ns)}</span>
        </li>
      ))}
    </ul>
  );
}
