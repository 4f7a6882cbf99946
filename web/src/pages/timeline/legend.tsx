/** What the colours mean, of those that are in use, and what the keys do. */
import { classMeaning, reasonMeaning, RUN_QUEUE } from "./colours";
import type { Slice } from "./slice";

export function Legend({ slice }: { slice: Slice }) {
  const used = (row: "calls" | "waits") => new Set(slice.lanes.flatMap((lane) => [...new Set(lane[row].kind)]));
  const calls = named([...used("calls")].map((kind) => classMeaning(slice.classes[kind] ?? "")));
  const waits = named([...used("waits")].map((kind) => reasonMeaning(slice.reasons[kind] ?? "")));
  return (
    <div class="timeline-legend">
      <p>
        <strong>Calls</strong>
        {calls.map(([text, colour]) => (
          <span key={text}>
            <span class="swatch" style={{ background: `var(--${colour})` }} aria-hidden="true" />
            {text}
          </span>
        ))}
      </p>
      <p>
        <strong>Off the CPU</strong>
        {waits.map(([text, colour]) => (
          <span key={text}>
            <span class="swatch hatched" style={{ color: `var(--${colour})` }} aria-hidden="true" />
            {text}
          </span>
        ))}
        <span>
          <span class="swatch" style={{ background: `var(--${RUN_QUEUE.colour})` }} aria-hidden="true" />
          {RUN_QUEUE.text}
        </span>
      </p>
    </div>
  );
}

/** Meanings that share a colour share an entry. */
function named(meanings: { text: string; colour: string }[]): [string, string][] {
  const texts = new Map<string, Set<string>>();
  for (const { text, colour } of meanings) texts.set(colour, (texts.get(colour) ?? new Set()).add(text));
  return [...texts].map(([colour, all]) => [[...all].join(", "), colour]);
}

const KEYS: readonly (readonly [string, string])[] = [
  ["← →", "move"],
  ["+ −", "zoom"],
  ["0", "show everything"],
  ["n p", "next and previous call or wait"],
  ["↑ ↓", "other row or lane"],
  ["Enter", "open the record"],
  ["/", "show or hide the keys"],
];

export function Keys() {
  return (
    <dl class="keys">
      {KEYS.map(([key, meaning]) => (
        <div key={key}>
          <dt>
            <kbd>{key}</kbd>
          </dt>
          <dd>{meaning}</dd>
        </div>
      ))}
      <div>
        <dt>
          <kbd>wheel</kbd>
        </dt>
        <dd>zoom around the pointer; with Shift, move</dd>
      </div>
    </dl>
  );
}
