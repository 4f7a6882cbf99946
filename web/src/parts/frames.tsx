/** A stack as a list, and how the walk over it ended where that is not at its end. */
import type { Stack } from "../answers";
import { Location } from "./place";

const ENDS: Readonly<Record<string, string>> = {
  too_deep: "It is deeper than what was walked.",
  unreadable: "Memory on the way could not be read.",
  no_mapping: "It leads into code that is not in any file.",
  no_rule: "It leads into code that does not say how it unwinds.",
  no_progress: "The walk went in circles.",
  no_frame_pointer: "It leads into code without frame pointers, whose tables were not there yet.",
  no_process: "The process was not known yet.",
  not_walked: "It was not walked.",
  broken: "Python's frames were being changed.",
  no_thread: "Python's state of this thread was not found.",
};

export function Frames({ title, stack }: { title: string; stack: Stack }) {
  const open = [stack.end, stack.python_end].map((end) => ENDS[end ?? ""]).find(Boolean);
  return (
    <>
      <h4>{title}</h4>
      <ol class="frames">
        {stack.frames.map((frame, index) => (
          <li key={index} class={frame.kind}>
            <strong>{frame.function}</strong>
            {frame.is_inlined && <span class="muted"> (inlined)</span>}
            <br />
            {frame.kind === "kernel" && !frame.file ? (
              <span class="muted">kernel</span>
            ) : (
              <Location file={frame.file ?? frame.module} line={frame.line} />
            )}
          </li>
        ))}
      </ol>
      {open && <p class="muted">Incomplete. {open}</p>}
    </>
  );
}

export function endMeaning(end: string): string {
  return ENDS[end] ?? "";
}
