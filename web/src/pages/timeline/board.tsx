/** The canvas with its lanes, overview, legend and keys. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Refusal } from "../../ask";
import { Refused } from "../../parts/asked";
import { change, part, type Query } from "../../route";
import { useTheme } from "../../theme";
import { duration } from "../../units";
import { palette } from "./colours";
import { draw, type Chosen } from "./draw";
import { geometry } from "./geometry";
import { describe, itemAt, refOf, type Words } from "./hit";
import { keyed, listen, type Moves } from "./input";
import { Keys, Legend } from "./legend";
import { Overview } from "./overview";
import { moved, start } from "./selection";
import type { Slice } from "./slice";
import { SliceSource } from "./source";
import { length, zoomed, type View } from "./view";

const NARROW = 720;
const KEEP_MS = 250;

interface Tip {
  readonly x: number;
  readonly y: number;
  readonly words: Words;
}

export function Board({ whole, origin, query }: { whole: Slice; origin: bigint; query: Query }) {
  const all = useMemo(() => ({ from: whole.from, to: whole.to }), [whole.from, whole.to]);
  const [view, setView] = useState<View>(() => fromAddress(query.view, origin, all));
  const [width, setWidth] = useState(0);
  const [tip, setTip] = useState<Tip | null>(null);
  const [chosen, setChosen] = useState<Chosen | null>(null);
  const [loaded, setLoaded] = useState<{ isLoading: boolean; refusal: Refusal | null; turn: number }>({ isLoading: false, refusal: null, turn: 0 });
  const [showsKeys, setShowsKeys] = useState(false);
  const canvas = useRef<HTMLCanvasElement>(null);
  const holder = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  const isNarrow = width > 0 && innerWidth < NARROW;
  const shape = useMemo(() => geometry(width, whole.lanes.length, isNarrow), [width, whole.lanes.length, isNarrow]);

  const source = useMemo(() => {
    const onChange = (isLoading: boolean, refusal: Refusal | null) =>
      setLoaded(({ turn }) => ({ isLoading, refusal, turn: turn + 1 }));
    return new SliceSource(whole, origin, part(query), onChange);
  }, [whole]);
  const slice = source.slice(view);
  const colours = useMemo(() => palette(slice.classes, slice.reasons), [slice, theme]);

  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    if (holder.current) observer.observe(holder.current);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    if (width > 0) source.want(view, width);
  }, [source, view, width]);
  useEffect(() => () => source.stop(), [source]);

  useLayoutEffect(() => {
    const context = canvas.current && sized(canvas.current, shape.width, shape.height);
    if (context && width > 0) draw(context, { slice, view, shape, palette: colours, origin, chosen });
  }, [slice, view, shape, colours, chosen, loaded.turn]);

  useEffect(() => {
    const timer = setTimeout(() => change({ view: toAddress(view, origin, all) }, "replace"), KEEP_MS);
    return () => clearTimeout(timer);
  }, [view]);

  const now = useRef({ view, slice, shape, all });
  now.current = { view, slice, shape, all };
  useEffect(() => {
    if (!canvas.current) return undefined;
    const frame = perFrame(setView);
    const at = (x: number, y: number) => itemAt(now.current.slice, now.current.view, now.current.shape, x, y);
    const moves: Moves = {
      view: () => frame.latest() ?? now.current.view,
      all: () => now.current.all,
      width: () => now.current.shape.width,
      move: (next) => (setTip(null), frame.set(next)),
      point: (x, y) => {
        const found = at(x, y);
        setTip(found && { x, y, words: describe(now.current.slice, found) });
      },
      leave: () => setTip(null),
      click: (x, y) => {
        const found = at(x, y);
        setChosen(found);
        if (found) change({ record: refOf(now.current.slice, found) });
      },
    };
    return listen(canvas.current, moves);
  }, []);

  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const next = keyed(event.key, view, all);
    const step = moved(event.key, slice, view, chosen ?? start(slice, view));
    if (event.key === "/" || event.key === "?") setShowsKeys(!showsKeys);
    else if (next) setView(next);
    else if (event.key === "Enter" && chosen) change({ record: refOf(slice, chosen) });
    else if (step) choose(step);
    else return;
    event.preventDefault();
  };
  const choose = (next: Chosen) => {
    setChosen(next);
    const items = slice.lanes[next.lane]![next.row];
    const middle = (items.start[next.index]! + items.end[next.index]!) / 2;
    if (middle < view.from || middle > view.to) setView(zoomed({ from: middle - length(view) / 2, to: middle + length(view) / 2 }, middle, 1, all));
  };

  return (
    <div class="timeline">
      <div class="timeline-tools">
        <button type="button" onClick={() => setView(keyed("+", view, all)!)} aria-label="Zoom in">+</button>
        <button type="button" onClick={() => setView(keyed("-", view, all)!)} aria-label="Zoom out">−</button>
        <button type="button" onClick={() => setView(all)}>All</button>
        <button type="button" disabled={length(view) >= length(all)} onClick={() => change({ from: moment(view.from, origin), to: moment(view.to, origin), view: "", since: "" })}>
          Look at this span on all pages
        </button>
        <span class="muted" role="status">
          {duration(length(view))} visible{loaded.isLoading ? ", reading more …" : ""}
        </span>
        <button type="button" class="keys-button" aria-expanded={showsKeys} onClick={() => setShowsKeys(!showsKeys)}>Keys</button>
      </div>
      {showsKeys && <Keys />}
      {loaded.refusal && <Refused refusal={loaded.refusal} />}
      <div class="lanes" data-narrow={isNarrow || undefined}>
        <Names whole={whole} height={shape.lane} />
        <div class="lanes-canvas" ref={holder}>
          <Overview whole={whole} view={view} width={width} onView={setView} />
          <div class="canvas-frame" style={{ height: `${shape.height}px` }}>
            <canvas ref={canvas} tabIndex={0} role="application" aria-label="Timeline. Arrow keys move, plus and minus zoom, n and p step through calls, slash shows all keys." aria-describedby="timeline-chosen" onKeyDown={onKey} />
            {tip && <Tooltip tip={tip} width={width} />}
          </div>
        </div>
      </div>
      <p id="timeline-chosen" class="chosen-words" aria-live="polite">
        {chosen && slice.lanes[chosen.lane] ? chosenText(slice, chosen) : "Point at something to see what it is; click it for the whole record."}
      </p>
      <Legend slice={slice} />
    </div>
  );
}

function Names({ whole, height }: { whole: Slice; height: number }) {
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

function Tooltip({ tip, width }: { tip: Tip; width: number }) {
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

function chosenText(slice: Slice, chosen: Chosen): string {
  const items = slice.lanes[chosen.lane]![chosen.row];
  if (chosen.index >= items.start.length) return "";
  const { title, lines } = describe(slice, chosen);
  return [title, ...lines].join(" · ");
}

/** Several moves within one frame are one drawing. */
function perFrame(set: (view: View) => void): { set: (view: View) => void; latest: () => View | null } {
  let next: View | null = null;
  const paint = () => {
    if (next) set(next);
    next = null;
  };
  return {
    set: (view) => {
      if (!next) requestAnimationFrame(paint);
      next = view;
    },
    latest: () => next,
  };
}

/** Sets the backing store only when the size changes: that clears the canvas. */
function sized(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const ratio = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d", { alpha: false });
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

function moment(offset: number, origin: bigint): string {
  return (origin + BigInt(Math.round(offset))).toString();
}

function toAddress(view: View, origin: bigint, all: View): string {
  return length(view) >= length(all) ? "" : `${moment(view.from, origin)}-${moment(view.to, origin)}`;
}

function fromAddress(text: string | undefined, origin: bigint, all: View): View {
  const [from, to] = (text ?? "").split("-").map((digits) => (/^\d{1,20}$/.test(digits) ? Number(BigInt(digits) - origin) : NaN));
  const isSpan = from !== undefined && to !== undefined && from < to && from < all.to && to > all.from;
  return isSpan ? { from: Math.max(from, all.from), to: Math.min(to, all.to) } : all;
}
