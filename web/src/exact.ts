/**
 * Reads JSON without losing digits. Moments are nanoseconds since 1970 and exceed what a double holds, so an integer
 * of 16 digits or more arrives as its decimal text.
 */
export function parseExactly(json: string): unknown {
  if (!/\d{16}/.test(json)) return JSON.parse(json);
  return JSON.parse(json.replace(STRING_OR_NUMBER, (match) => (LONG_INTEGER.test(match) ? `"${match}"` : match)));
}

/** Strings are matched as a whole, so that digits inside them are passed over. */
const STRING_OR_NUMBER = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const LONG_INTEGER = /^-?\d{16,}$/;

/** A moment, as the server writes it. */
export type Moment = string | number;

export function ns(moment: Moment): bigint {
  return BigInt(moment);
}

/** How long after `start` it is. Differences of moments fit a double. */
export function since(start: Moment, moment: Moment): number {
  return Number(ns(moment) - ns(start));
}
