/** A stack as a list, and how the walk over it ended where that is not at its end. */
import type { RecordFrame, Stack } from "../answers";
import { Location } from "./place";
import { counted } from "../units";

/** What frames of records and of rankings have in common. */
type ShownFrame = Omit<RecordFrame, "address">;
type ShownStack = Omit<Stack, "frames"> & { frames: readonly ShownFrame[] };

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

export function Frames({ title, stack }: { title: string; stack: ShownStack }) {
  const open = [stack.end, stack.python_end].map((end) => ENDS[end ?? ""]).find(Boolean);
  const inKernel = stack.frames.findIndex((frame) => frame.kind !== "kernel");
  const kernel = inKernel < 0 ? stack.frames.length : inKernel;
  return (
    <>
      <h4>{title}</h4>
      {kernel > 0 && (
        <details class="more">
          <summary>{counted(kernel, "frame")} in the kernel</summary>
          <FrameList frames={stack.frames.slice(0, kernel)} site={null} />
        </details>
      )}
      <FrameList frames={stack.frames.slice(kernel)} site={stack.site === null ? null : stack.site - kernel} />
      {open && <p class="muted">Incomplete. {open}</p>}
    </>
  );
}

/** The site is the user's own line, which is what one wants to see first. */
function FrameList({ frames, site }: { frames: readonly ShownFrame[]; site: number | null }) {
  return (
    <ol class="frames">
      {frames.map((frame, index) => (
        <li key={index} class={index === site ? `${frame.kind} site` : frame.kind}>
          <strong>{frame.function || "unknown"}</strong>
          {frame.is_inlined && <span class="muted"> (inlined)</span>}
          {index === site && <span class="tag">look here</span>}
          {(frame.file ?? frame.module) && (
            <>
              <br />
              <Location file={frame.file ?? frame.module} line={frame.line} />
            </>
          )}
        </li>
      ))}
    </ol>
  );
}

export function endMeaning(end: string): string {
  return ENDS[end] ?? "";
}
