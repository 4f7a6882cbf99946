/** The address is the state: `#/page?key=value`. A link to it shows the same thing to somebody else. */
import { useEffect, useState } from "preact/hooks";
import type { Parameters } from "./ask";

export type Query = Readonly<Record<string, string>>;
export interface Route {
  readonly page: string;
  readonly query: Query;
}

/** What stays when one goes to another page: which trace, and which part of it. */
const KEPT = ["trace", "since", "from", "to", "pid"];

export function useRoute(): Route {
  const [route, setRoute] = useState(current);
  useEffect(() => {
    const update = () => setRoute(current());
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return route;
}

export function current(): Route {
  const [page = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { page, query: Object.fromEntries(new URLSearchParams(query)) };
}

export function address(page: string, query: Query): string {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "")).toString();
  return `#/${page}${text ? `?${text}` : ""}`;
}

/** The address of a page, for the same part of the same trace. */
export function pageAddress(page: string, more: Query = {}): string {
  const kept = Object.entries(current().query).filter(([key]) => KEPT.includes(key));
  return address(page, { ...Object.fromEntries(kept), ...more });
}

/** The address of this page with some keys changed; an empty value removes its key. */
export function changedAddress(changes: Query): string {
  const { page, query } = current();
  return address(page, { ...query, ...changes });
}

/** Changes this page's state. Small steps, such as a zoom, replace the entry in the history. */
export function change(changes: Query, step: "push" | "replace" = "push"): void {
  const next = changedAddress(changes);
  if (next === location.hash) return;
  if (step === "push") location.hash = next;
  else {
    history.replaceState(null, "", next);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
}

/** The part of the trace that the address names, as questions take it. */
export function part(query: Query): Parameters {
  const { trace, since, from, to, pid } = query;
  return { trace, since, from, to, pid: pid ? Number(pid) : undefined };
}

/** What the timeline shows in order to see something of this length with what is around it. */
export function spanAround(moment: string, length: number): string {
  const margin = BigInt(Math.round(length * 2.5));
  const start = BigInt(moment);
  return `${start - margin}-${start + BigInt(Math.round(length)) + margin}`;
}
