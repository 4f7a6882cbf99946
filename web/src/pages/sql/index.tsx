/** A console for SQL over the trace: read-only, with the tables beside it and a plot of what comes back. */
import { useRef, useState } from "preact/hooks";
import { ask, Refusal } from "../../ask";
import type { Rows } from "../../answers";
import { Refused } from "../../parts/asked";
import { Panel } from "../../parts/panel";
import { change, type Query } from "../../route";
import { useEffect } from "preact/hooks";
import { Schema } from "./schema";
import { Result } from "./result";

const FIRST = `SELECT op, count(*) AS calls, max(duration_ns) / 1e6 AS worst_ms
FROM cuda_events
GROUP BY op
ORDER BY worst_ms DESC`;

const EXAMPLES: readonly (readonly [string, string])[] = [
  ["Functions by their worst call", FIRST],
  [
    "Calls per 100 ms",
    "SELECT timestamp_ns / 100000000 * 100000000 AS time_ns, count(*) AS calls\nFROM cuda_events\nGROUP BY 1\nORDER BY 1",
  ],
  [
    "Who ended waits",
    "SELECT woken_by_comm, count(*) AS waits, sum(blocked_ns) / 1e6 AS ms\nFROM sched_events\nGROUP BY 1\nORDER BY ms DESC",
  ],
  [
    "Slow launches",
    "SELECT timestamp_ns, duration_ns, runqueue_ns, blocked_ns, comm\nFROM cuda_events\nWHERE op LIKE '%LaunchKernel%'\nORDER BY duration_ns DESC\nLIMIT 50",
  ],
];

const MOST_ROWS = 2000;

export function Sql({ query }: { query: Query }) {
  const [text, setText] = useState(query.sql ?? FIRST);
  const [rows, setRows] = useState<Rows | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [isRunning, setRunning] = useState(false);
  const control = useRef<AbortController | null>(null);

  const run = async (sql: string) => {
    control.current?.abort();
    const mine = (control.current = new AbortController());
    change({ sql }, "replace");
    setRunning(true);
    setRefusal(null);
    try {
      setRows(await ask("sql", { sql, limit: MOST_ROWS, trace: query.trace }, mine.signal));
    } catch (error) {
      if (mine.signal.aborted) return;
      setRefusal(error instanceof Refusal ? error : new Refusal("failed", String(error), null));
    }
    if (control.current === mine) setRunning(false);
  };
  useEffect(() => {
    void run(text);
    return () => control.current?.abort();
  }, []);

  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      void run(text);
    }
  };
  const insert = (sql: string) => {
    setText(sql);
    void run(sql);
  };
  return (
    <div class="sql">
      <Panel
        title="SQL"
        about="One statement that only reads. Times are nanoseconds since 1970; durations are nanoseconds."
      >
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void run(text);
          }}
        >
          <label class="visually-hidden" for="statement">
            Statement
          </label>
          <textarea
            id="statement"
            rows={7}
            spellcheck={false}
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
            onKeyDown={onKey}
          />
          <div class="tools">
            <button type="submit" class="primary">
              Run
            </button>
            <span class="muted">Ctrl + Enter</span>
            <label>
              <span class="visually-hidden">Examples</span>
              <select value="" onChange={(event) => insert(event.currentTarget.value)}>
                <option value="">Examples …</option>
                {EXAMPLES.map(([title, sql]) => (
                  <option key={title} value={sql}>
                    {title}
                  </option>
                ))}
              </select>
            </label>
            <span role="status" class="muted">
              {isRunning ? "Running …" : ""}
            </span>
          </div>
        </form>
        {refusal && <Refused refusal={refusal} />}
        {rows && !refusal && <Result rows={rows} />}
      </Panel>
      <Schema trace={query.trace} onTable={(table) => insert(`SELECT *\nFROM ${table}\nLIMIT 50`)} />
    </div>
  );
}
