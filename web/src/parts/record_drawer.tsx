/** The records behind a claim, in full. Which ones is part of the address, so a link can show them. */
import { useEffect, useRef } from "preact/hooks";
import type { Cell, FullRecord } from "../answers";
import { Answered, useAnswer } from "./asked";
import { Frames } from "./frames";
import { change, pageAddress, spanAround } from "../route";
import { bytes, count, counted, duration, timeOfDay } from "../units";

const MOST = 12;

export function RecordDrawer({ refs, trace }: { refs: string | undefined; trace: string | undefined }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (refs && !dialog.current?.open) dialog.current?.showModal();
    if (!refs) dialog.current?.close();
  }, [refs]);
  const close = () => change({ record: "" });
  const onBackdrop = (event: MouseEvent) => event.target === dialog.current && close();
  const all = refs ? refs.split(",") : [];
  return (
    <dialog ref={dialog} class="drawer" aria-labelledby="drawer-title" onClose={close} onClick={onBackdrop}>
      {refs && (
        <>
          <header class="drawer-head">
            <h2 id="drawer-title">{all.length === 1 ? "Record" : counted(all.length, "record")}</h2>
            <button type="button" onClick={close}>
              Close
            </button>
          </header>
          {all.slice(0, MOST).map((ref) => (
            <OneRecord key={ref} name={ref} trace={trace} />
          ))}
        </>
      )}
    </dialog>
  );
}

const KINDS: Readonly<Record<string, string>> = {
  cuda: "Call into a GPU library",
  sched: "Time off the CPU",
  kernel: "Work of the kernel",
  io: "Request to a disk",
};

/** Of use to a join, not to a reader; and what a record stands for, where that is only itself. */
function isHidden(name: string, record: FullRecord["record"]): boolean {
  return name === "session_id" || (name.startsWith("all_") && record.all_count === 1);
}

function OneRecord({ name, trace }: { name: string; trace: string | undefined }) {
  const asked = useAnswer("record", { ref: name, trace });
  return (
    <section class="record">
      <p class="muted">{KINDS[name.split(":")[0] ?? ""] ?? "Record"}</p>
      <h3>{name}</h3>
      <Answered of={asked} what="the record">
        {(full) => (
          <>
            <dl class="fields">
              {Object.entries(full.record)
                .filter(([name, value]) => value !== null && value !== "" && !isHidden(name, full.record))
                .map(([name, value]) => (
                  <Field key={name} name={name} value={value} />
                ))}
            </dl>
            <TimelineLink record={full.record} />
            {full.stack && <Frames title="Its stack, innermost first" stack={full.stack} />}
            {full.waker_stack && <Frames title="What the thread that ended it was doing" stack={full.waker_stack} />}
          </>
        )}
      </Answered>
    </section>
  );
}

function TimelineLink({ record }: { record: FullRecord["record"] }) {
  const { timestamp_ns, duration_ns } = record;
  if (!timestamp_ns) return null;
  const view = spanAround(String(timestamp_ns), Math.max(10_000, Number(duration_ns ?? 0)));
  return (
    <p class="drawer-link">
      <a href={pageAddress("timeline", { view })}>See it on the timeline</a>
    </p>
  );
}

function Field({ name, value }: { name: string; value: Cell }) {
  return (
    <>
      <dt>{name.replace(/_ns$/, "").replaceAll("_", " ")}</dt>
      <dd>{written(name, value)}</dd>
    </>
  );
}

/** The unit is in the field's name. */
function written(name: string, value: Cell): string {
  if (value === null) return "";
  if (name === "timestamp_ns" || name.endsWith("_at_ns")) return timeOfDay(String(value), 1);
  if (typeof value === "string") return value;
  if (name.startsWith("is_")) return value ? "yes" : "no";
  if (name.endsWith("_ns")) return duration(value);
  if (name === "bytes" || name.endsWith("_bytes")) return `${bytes(value)} (${count(value)})`;
  return String(value);
}
