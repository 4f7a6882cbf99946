/** Numbers as people read them. */
import { ns, type Moment } from "./exact";

/** Three significant digits and the unit that suits them. */
export function duration(value: number): string {
  const size = Math.abs(value);
  if (size < 1e3) return `${Math.round(value)} ns`;
  if (size < 1e6) return `${three(value / 1e3)} µs`;
  if (size < 1e9) return `${three(value / 1e6)} ms`;
  if (size < 120e9) return `${three(value / 1e9)} s`;
  if (size < 7200e9) return `${three(value / 60e9)} min`;
  return `${three(value / 3600e9)} h`;
}

/** A time after the start, with the digits that tell two marks of `step` nanoseconds apart. */
export function offset(value: number, step: number): string {
  const [unit, size] = value < 1e3 ? ["ns", 1] : value < 1e6 ? ["µs", 1e3] : value < 1e9 ? ["ms", 1e6] : ["s", 1e9];
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10(size / step) - 1e-9)));
  return `${(value / size).toFixed(digits)} ${unit}`;
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, Math.abs(value))) / 10));
  return power === 0 ? `${Math.round(value)} B` : `${three(value / 1024 ** power)} ${units[power]}`;
}

export function count(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

/** `1 step`, `2,000 steps`. */
export function counted(value: number, what: string): string {
  return `${count(value)} ${what}${value === 1 ? "" : "s"}`;
}

/** `37 %`, with more digits where they matter. */
export function share(value: number): string {
  const percent = value * 100;
  if (percent !== 0 && Math.abs(percent) < 0.01) return "< 0.01 %";
  return `${percent >= 10 || percent === 0 ? percent.toFixed(0) : percent.toFixed(percent < 1 ? 2 : 1)} %`;
}

/** The time of day, and the date. */
export function clock(moment: Moment): string {
  return date(moment).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** The time of day with the digits that tell two moments of `resolution` nanoseconds apart. */
export function timeOfDay(moment: Moment, resolution = 1e6): string {
  const fraction = (ns(moment) % 1_000_000_000n).toString().padStart(9, "0");
  const digits = Math.min(9, Math.max(0, Math.ceil(9 - Math.log10(Math.max(1, resolution)))));
  const whole = date(moment).toLocaleTimeString(undefined, { hour12: false });
  return digits ? `${whole}.${fraction.slice(0, digits)}` : whole;
}

export function date(moment: Moment): Date {
  return new Date(Number(ns(moment) / 1_000_000n));
}

/** `python3 (4711)`, and the thread where it is not the first one. */
export function who(comm: string, pid: number, tid = pid): string {
  return tid === pid || tid === 0 ? `${comm} (${pid})` : `${comm} (${pid}/${tid})`;
}

function three(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size < 10 ? 2 : size < 100 ? 1 : 0);
}
