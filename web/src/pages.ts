/** The pages, in the order of the navigation. A new page is a folder and a line here. */
import type { ComponentType } from "preact";
import type { Query } from "./route";
import { Calls } from "./pages/calls";
import { CoveragePage } from "./pages/coverage";
import { Flame } from "./pages/flame";
import { Memory } from "./pages/memory";
import { Sql } from "./pages/sql";
import { Time } from "./pages/time";
import { Timeline } from "./pages/timeline";
import { Verdict } from "./pages/verdict";

export interface Page {
  readonly path: string;
  readonly title: string;
  /** Pages that draw use the whole width. */
  readonly isWide?: boolean;
  readonly Page: ComponentType<{ query: Query }>;
}

export const PAGES: readonly Page[] = [
  { path: "", title: "Verdict", Page: Verdict },
  { path: "timeline", title: "Timeline", isWide: true, Page: Timeline },
  { path: "time", title: "Time", isWide: true, Page: Time },
  { path: "calls", title: "Calls", isWide: true, Page: Calls },
  { path: "flame", title: "Flame graph", isWide: true, Page: Flame },
  { path: "memory", title: "Memory", Page: Memory },
  { path: "coverage", title: "Coverage", Page: CoveragePage },
  { path: "sql", title: "SQL", isWide: true, Page: Sql },
];
