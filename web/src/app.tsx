/** The frame around every page: what trace it is, where one can go, which part of the trace is looked at. */
import { useEffect, useRef, useState } from "preact/hooks";
import { whenUnauthorized } from "./ask";
import type { SessionSummary } from "./answers";
import { PAGES } from "./pages";
import { Live, useAnswer } from "./parts/asked";
import { Login } from "./parts/login";
import { PartBar } from "./parts/part_bar";
import { RecordDrawer } from "./parts/record_drawer";
import { TraceChoice } from "./parts/trace_choice";
import { pageAddress, useRoute } from "./route";
import { toggleTheme, useTheme } from "./theme";
import { date } from "./units";

export function App() {
  const [needsToken, setNeedsToken] = useState(false);
  useEffect(() => whenUnauthorized(() => setNeedsToken(true)), []);
  return needsToken ? <Login onDone={() => setNeedsToken(false)} /> : <Frame />;
}

function Frame() {
  const { page: path, query } = useRoute();
  const page = PAGES.find((page) => page.path === path);
  const [isLive, setLive] = useState(false);
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  useEffect(() => {
    document.title = page && page.path ? `${page.title} · gpuwhy` : "gpuwhy: why is my GPU waiting?";
    if (first.current) first.current = false;
    else main.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [path]);
  return (
    <Live.Provider value={isLive}>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        Skip to the content
      </a>
      <Head path={path} trace={query.trace} onLive={setLive} query={query} />
      <main id="main" ref={main} tabIndex={-1} class={page?.isWide ? "wide" : undefined}>
        {page ? <page.Page query={query} /> : <Nowhere />}
      </main>
      <RecordDrawer refs={query.record} trace={query.trace} />
    </Live.Provider>
  );
}

function Head(props: {
  path: string;
  trace: string | undefined;
  query: Readonly<Record<string, string>>;
  onLive: (isLive: boolean) => void;
}) {
  const { answer } = useAnswer("summary", { trace: props.trace });
  const isLive = isGrowing(answer?.sessions.at(-1));
  useEffect(() => props.onLive(isLive), [isLive]);
  return (
    <header class="top">
      <div class="top-line">
        <a class="brand" href={pageAddress("")}>
          <img src="icon.svg" alt="" width={24} height={24} />
          gpuwhy
        </a>
        <TraceChoice name={answer?.trace} />
        {isLive && <span class="live">recording</span>}
        <ThemeButton />
      </div>
      <Navigation path={props.path} />
      <PartBar query={props.query} summary={answer} />
    </header>
  );
}

function Navigation({ path }: { path: string }) {
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    const here = list.current?.querySelector("[aria-current]");
    here?.scrollIntoView({ inline: "center", block: "nearest" });
  }, [path]);
  return (
    <nav aria-label="Pages">
      <ul ref={list}>
        {PAGES.map((page) => (
          <li key={page.path}>
            <a href={pageAddress(page.path)} aria-current={page.path === path ? "page" : undefined}>
              {page.title}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

/** A tracer that was killed leaves its session open as well, but writes no more. */
function isGrowing(session: SessionSummary | undefined): boolean {
  if (!session || session.ended_ns !== null) return false;
  return Date.now() - date(session.last_commit_ns).getTime() < 60_000;
}

function ThemeButton() {
  const theme = useTheme();
  const other = theme === "dark" ? "light" : "dark";
  return (
    <button type="button" class="theme" onClick={toggleTheme} title={`Use ${other} colours`}>
      <svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true">
        <circle cx="10" cy="10" r="7" fill="none" stroke="currentColor" stroke-width="1.6" />
        <path d="M10 3a7 7 0 0 1 0 14z" fill="currentColor" />
      </svg>
      <span class="visually-hidden">Use {other} colours</span>
    </button>
  );
}

function Nowhere() {
  return (
    <div class="panel">
      <h1>There is no such page</h1>
      <p>
        <a href={pageAddress("")}>Go to the verdict</a>
      </p>
    </div>
  );
}
