/** The visible span, and how it moves. Pure arithmetic: nanoseconds after the origin. */
export interface View {
  readonly from: number;
  readonly to: number;
}

/** One cannot see more than the trace, nor less than a microsecond. */
const LEAST_NS = 1_000;

export function length(view: View): number {
  return view.to - view.from;
}

/** Makes the span longer or shorter around a point that stays where it is. */
export function zoomed(view: View, at: number, factor: number, all: View): View {
  const span = Math.min(Math.max(length(view) * factor, LEAST_NS), length(all));
  const share = (at - view.from) / length(view);
  return within({ from: at - span * share, to: at - span * share + span }, all);
}

export function panned(view: View, by: number, all: View): View {
  return within({ from: view.from + by, to: view.to + by }, all);
}

/** Moves a span back into the trace without changing its length. */
export function within(view: View, all: View): View {
  const span = Math.min(length(view), length(all));
  const from = Math.min(Math.max(view.from, all.from), all.to - span);
  return { from, to: from + span };
}

/** What to ask for: the visible span and half of it on each side, so that a small pan shows something. */
export function around(view: View, all: View): View {
  const margin = length(view) / 2;
  return { from: Math.max(all.from, view.from - margin), to: Math.min(all.to, view.to + margin) };
}

/** Whether a loaded span shows the view about as finely as a new one would. */
export function serves(loaded: View, view: View, all: View): boolean {
  const covers = loaded.from <= view.from && loaded.to >= view.to;
  return covers && length(loaded) <= length(around(view, all)) * 1.5 + LEAST_NS;
}

/** Round times for about `most` marks. */
export function ticks(view: View, most: number): number[] {
  const rough = length(view) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((step) => step >= rough) ?? rough;
  const first = Math.ceil(view.from / step);
  const marks: number[] = [];
  for (let index = first; index * step <= view.to; index += 1) marks.push(index * step);
  return marks;
}
