/** What stands around the canvas: buttons, names of lanes, the tooltip. */
import { duration } from "../../units";
import type { Words } from "./hit";
import type { Slice } from "./slice";
import { length, type View } from "./view";

export interface Tip {
  readonly x: number;
  readonly y: number;
  readonly words: Words;
}

export function Tools(props: {
  view: View;
  all: View;
  isLoading: boolean;
  showsKeys: boolean;
  onKey: (key: string) => void;
  onPart: () => void;
}) {
  const { view, all, onKey } = props;
  return (
    <div class="timeline-tools">
      <button type="button" aria-label="Zoom in" onClick={() => onKey("+")}>
        +
      </button>
      <button type="button" aria-label="Zoom out" onClick={() => onKey("-")}>
        −
      </button>
      <button type="button" onClick={() => onKey("0")}>
        All
      </button>
      <button type="button" disabled={length(view) >= length(all)} onClick={props.onPart}>
        Look at this span on all pages
      </button>
      <span class="muted" role="status">
        {duration(length(view))} visible{props.isLoading ? ", reading more …" : ""}
      </span>
      <button type="button" class="keys-button" aria-expanded={props.showsKeys} onClick={() => onKey("/")}>
        Keys
      </button>
    </div>
  );
}

export function Names({ whole, height }: { whole: Slice; height: number }) {
  return (
    <ol class="lane-names" aria-label="Threads">
      {whole.lanes.map((lane) => (
        <li key={lane.tid} style={{ height: `${height}px` }}>
          <strong>{lane.comm}</strong>
          <span class="muted">
            {lane.tid === lane.pid ? lane.pid : `${lane.pid}/${lane.tid}`}
            {lane.isDispatcher && <span class="tag">feeds the GPU</span>}
            {!lane.isDispatcher && lane.comm !== lane.processComm && ` of ${lane.processComm}`}
          </span>
        </li>
      ))}
    </ol>
  );
}

export function Tooltip({ tip, width }: { tip: Tip; width: number }) {
  const isRight = tip.x > width / 2;
  const side = isRight ? { right: `${width - tip.x + 12}px` } : { left: `${tip.x + 12}px` };
  return (
    <div class="tooltip" style={{ ...side, top: `${tip.y + 14}px` }} aria-hidden="true">
      <strong>{tip.words.title}</strong>
      {tip.words.lines.map((line) => (
        <span key={line}>{line}</span>
      ))}
    </div>
  );
}
