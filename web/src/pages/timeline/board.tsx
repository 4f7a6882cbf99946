/** The canvas with its lanes, overview, legend and keys. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Refusal } from "../../ask";
import { Refused } from "../../parts/asked";
import { change, part, type Query } from "../../route";
import { useTheme } from "../../theme";
import { fromAddress, moment, toAddress } from "./address";
import { Names, Tools, Tooltip, type Tip } from "./around";
import { perFrame, sized } from "./canvas";
import { palette } from "./colours";
import { draw, type Chosen } from "./draw";
import { geometry } from "./geometry";
import { describe, itemAt, refOf } from "./hit";
import { keyed, listen, type Moves } from "./input";
import { Keys, Legend } from "./legend";
import { Overview } from "./overview";
import { again, moved, start } from "./selection";
import type { Slice } from "./slice";
import { SliceSource } from "./source";
import { length, within, type View } from "./view";

const NARROW = 720;
/** The address follows the view when it has come to rest. */
const REST_MS = 250;
const LABEL = "Timeline. Arrow keys move, plus and minus zoom, n and p step through calls, slash shows all keys.";

export function Board({ whole, origin, query }: { whole: Slice; origin: bigint; query: Query }) {
  const all = useMemo(() => ({ from: whole.from, to: whole.to }), [whole.from, whole.to]);
  const [view, setView] = useView(query.view, origin, all);
  const [tip, setTip] = useState<Tip | null>(null);
  const [showsKeys, setShowsKeys] = useState(false);
  const canvas = useRef<HTMLCanvasElement>(null);
  const holder = useRef<HTMLDivElement>(null);
  const width = useWidth(holder);
  const theme = useTheme();
  const isNarrow = width > 0 && innerWidth < NARROW;
  const shape = useMemo(() => geometry(width, whole.lanes.length, isNarrow), [width, whole.lanes.length, isNarrow]);
  const { slice, isLoading, refusal } = useSlice(whole, origin, query, view, width);
  const [chosen, setChosen] = useChosen(slice);
  const colours = useMemo(() => palette(slice.classes, slice.reasons), [slice, theme]);

  useLayoutEffect(() => {
    const context = canvas.current && width > 0 && sized(canvas.current, shape.width, shape.height);
    if (context) draw(context, { slice, view, shape, palette: colours, origin, chosen });
  }, [slice, view, shape, colours, chosen]);

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
        setChosen(found, now.current.slice);
        if (found) change({ record: refOf(now.current.slice, found) });
      },
    };
    return listen(canvas.current, moves);
  }, []);

  const press = (key: string): boolean => {
    const next = keyed(key, view, all);
    const step = moved(key, slice, view, chosen ?? start(slice, view));
    if (key === "/" || key === "?") setShowsKeys(!showsKeys);
    else if (next) setView(next);
    else if (key === "Enter" && chosen) change({ record: refOf(slice, chosen) });
    else if (step) choose(step);
    else return false;
    return true;
  };
  const choose = (next: Chosen) => {
    const items = slice.lanes[next.lane]![next.row];
    const middle = (items.start[next.index]! + items.end[next.index]!) / 2;
    const half = length(view) / 2;
    setChosen(next, slice);
    if (middle < view.from || middle > view.to) setView(within({ from: middle - half, to: middle + half }, all));
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (press(event.key)) event.preventDefault();
  };
  const onPart = () => change({ from: moment(view.from, origin), to: moment(view.to, origin), view: "", since: "" });

  return (
    <div class="timeline">
      <Tools {...{ view, all, isLoading, showsKeys, onPart }} onKey={press} />
      {showsKeys && <Keys />}
      {refusal && <Refused refusal={refusal} />}
      <div class="lanes" data-narrow={isNarrow || undefined}>
        <Names whole={whole} height={shape.lane} />
        <div class="lanes-canvas" ref={holder}>
          <Overview whole={whole} view={view} width={width} onView={setView} />
          <div class="canvas-frame" style={{ height: `${shape.height}px` }}>
            <canvas
              ref={canvas}
              tabIndex={0}
              role="application"
              aria-label={LABEL}
              aria-describedby="timeline-chosen"
              onKeyDown={onKey}
            />
            {tip && <Tooltip tip={tip} width={width} />}
          </div>
        </div>
      </div>
      <p id="timeline-chosen" class="chosen-words" aria-live="polite">
        {chosen
          ? words(slice, chosen)
          : "Scroll to zoom, drag to move. Point at something to see what it is; click it for the whole record."}
      </p>
      <Legend slice={slice} />
    </div>
  );
}

/** The visible span. It is part of the address, and grows with a trace of which everything is visible. */
function useView(text: string | undefined, origin: bigint, all: View): [View, (view: View) => void] {
  const [view, setView] = useState<View>(() => fromAddress(text, origin, all));
  const before = useRef({ all, text });
  useEffect(() => {
    const seesAll = length(view) >= length(before.current.all);
    if (text !== before.current.text && text !== toAddress(view, origin, all)) setView(fromAddress(text, origin, all));
    else if (before.current.all !== all) setView(seesAll ? all : within(view, all));
    before.current = { all, text };
  }, [all, text]);
  useEffect(() => {
    const timer = setTimeout(() => {
      const rested = toAddress(view, origin, all);
      before.current = { all, text: rested || undefined };
      change({ view: rested }, "replace");
    }, REST_MS);
    return () => clearTimeout(timer);
  }, [view]);
  return [view, setView];
}

/** What is chosen. Items are numbered within a slice, so it is looked up again in the next one. */
function useChosen(slice: Slice): [Chosen | null, (chosen: Chosen | null, of: Slice) => void] {
  const [picked, setPicked] = useState<{ chosen: Chosen; of: Slice } | null>(null);
  const chosen = useMemo(() => {
    if (!picked) return null;
    return picked.of === slice ? picked.chosen : again(picked.of, picked.chosen, slice);
  }, [picked, slice]);
  return [chosen, (chosen, of) => setPicked(chosen && { chosen, of })];
}

/** The best slice there is for the view; a better one is on its way. */
function useSlice(whole: Slice, origin: bigint, query: Query, view: View, width: number) {
  const [state, setState] = useState<{ isLoading: boolean; refusal: Refusal | null; turn: number }>({
    isLoading: false,
    refusal: null,
    turn: 0,
  });
  const last = useRef<SliceSource | null>(null);
  const source = useMemo(() => {
    const onChange = (isLoading: boolean, refusal: Refusal | null) =>
      setState(({ turn }) => ({ isLoading, refusal, turn: turn + 1 }));
    return (last.current = new SliceSource(whole, origin, part(query), onChange, last.current));
  }, [whole]);
  useEffect(() => () => source.stop(), [source]);
  useEffect(() => {
    if (width > 0) source.want(view, width);
  }, [source, view, width]);
  return { slice: source.slice(view), isLoading: state.isLoading, refusal: state.refusal };
}

function useWidth(holder: { readonly current: HTMLElement | null }): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    if (holder.current) observer.observe(holder.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

function words(slice: Slice, chosen: Chosen): string {
  const { title, lines } = describe(slice, chosen);
  return [title, ...lines].join(" · ");
}
