"""Others read what `gpuwhy export` writes: Perfetto every slice, whose it is, its arrows and counters; a reader of pprof the
stacks; DuckDB every row of the views."""

import json
import os
import pathlib
import sqlite3
import subprocess
import tempfile

import duckdb
from perfetto_reader import Reader

TRACE = os.environ["GPUWHY_TRACE"]
CALLS = "SELECT class, count(*) FROM cuda_events GROUP BY class"
WAITS = "SELECT count(*) FROM sched_events WHERE blocked_ns > 0"
WOKEN = "SELECT count(*) FROM sched_events WHERE woken_by_tid IS NOT NULL"
LONGEST = "SELECT op, duration_ns, tid FROM cuda_events ORDER BY duration_ns DESC, id LIMIT 1"
SAMPLED = "SELECT count(*) FROM sample_values"
WITH_STACKS = (
    "SELECT sum(blocked_ns) FROM sched_events WHERE stack_id IN (SELECT stack_id FROM stack_lines)",
    "SELECT sum(duration_ns) FROM cuda_events WHERE stack_id IN (SELECT stack_id FROM stack_lines)",
    "SELECT sum(count) FROM stack_samples WHERE stack_id IN (SELECT stack_id FROM stack_lines)",
)
VIEWS = ("cuda_events", "sched_events", "thread_times", "io_events", "sample_values", "nccl_events")


def main():
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("perfetto", "chrome"):
            with Reader(exported(folder, kind)) as reader:
                timeline(reader, kind)
        profile(exported(folder, "pprof"))
        for view in VIEWS:
            rows(exported(folder, "parquet", view), view)


def exported(folder, kind, view=None):
    out = pathlib.Path(folder) / (view or kind)
    of_view = ["--view", view] if view else []
    subprocess.run([os.environ["GPUWHY"], "export", TRACE, "--format", kind, *of_view, "--out", out], check=True)
    return out


def timeline(reader, kind):
    trace = sqlite3.connect(TRACE)
    problems = reader.rows("SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0")
    assert not problems, problems
    found = dict(reader.rows("SELECT category, count(*) FROM slice GROUP BY category"))
    expected = dict(trace.execute(CALLS)) | {"wait": trace.execute(WAITS).fetchone()[0]}
    assert {name: found.get(name) for name in expected} == expected, (found, expected)
    assert found["finding"] > 0
    arrows = reader.rows("SELECT count(*) FROM flow JOIN slice ON slice.id = slice_in WHERE category = 'runqueue'")[0][0]
    assert arrows == trace.execute(WOKEN).fetchone()[0], arrows
    longest = reader.rows(
        "SELECT slice.name, dur, tid FROM slice JOIN thread_track ON thread_track.id = track_id JOIN thread USING (utid)"
        f" WHERE category IN ({', '.join(repr(name) for name in expected if name != 'wait')}) ORDER BY dur DESC, ts LIMIT 1"
    )
    assert longest == trace.execute(LONGEST).fetchall(), longest
    samples = reader.rows("SELECT count(*) FROM counter JOIN counter_track ON counter_track.id = track_id")[0][0]
    assert samples == trace.execute(SAMPLED).fetchone()[0], samples
    print(f"  {kind}: {sum(found.values())} slices, {arrows} arrows, {samples} samples")


def profile(file):
    """A reader of pprof by others finds the stacks and as much time as the trace has with a stack."""
    script = pathlib.Path(__file__).parent / "read_profile.mjs"
    read = subprocess.run(["node", script, os.environ["NODE_MODULES"], file], check=True, capture_output=True, text=True)
    found = json.loads(read.stdout)
    assert found["kinds"] == [["blocked", "nanoseconds"], ["slow_calls", "nanoseconds"], ["running", "samples"]], found["kinds"]
    expected = [sqlite3.connect(TRACE).execute(sql).fetchone()[0] for sql in WITH_STACKS]
    assert found["sums"] == expected, (found["sums"], expected)
    assert all(name for stack in found["stacks"] for name in stack)
    print(f"  pprof: {len(found['stacks'])} stacks, {found['sums']}")


def rows(file, view):
    """As many as the trace has, and in each column as many values and the same in all."""
    trace = sqlite3.connect(TRACE)
    columns = [(name, kind) for name, kind, *_ in duckdb.sql(f"DESCRIBE SELECT * FROM read_parquet('{file}')").fetchall()]
    assert [name for name, _ in columns] == [name for _, name, *_ in trace.execute(f"PRAGMA table_info({view})")], columns
    # Of texts their lengths, and of whole numbers what is left of them, so that sums of 64 bits suffice.
    value = {"BIGINT": "{0} % 1000003", "DOUBLE": "round({0})", "VARCHAR": "length({0})"}
    sums = [f'count("{name}")' for name, _ in columns]
    sums += ["CAST(sum(" + value[kind].format(f'"{name}"') + ") AS BIGINT)" for name, kind in columns]
    asked = f"SELECT count(*), {', '.join(sums)} FROM "
    found, expected = duckdb.sql(f"{asked} read_parquet('{file}')").fetchone(), trace.execute(asked + view).fetchone()
    assert found == expected, (view, found, expected)
    print(f"  parquet: {found[0]} rows of {view}, {len(columns)} columns")


if __name__ == "__main__":
    main()
