-- Sampling, the tracer's own cost, and the governor's rungs. Version 1 saw every call, so its counts are exact.
ALTER TABLE sessions ADD COLUMN budget REAL;
ALTER TABLE sessions ADD COLUMN is_virtual_machine INTEGER;

ALTER TABLE call_counts ADD COLUMN estimate INTEGER NOT NULL DEFAULT 0;
ALTER TABLE call_counts ADD COLUMN variance REAL NOT NULL DEFAULT 0;
UPDATE call_counts SET estimate = count;

ALTER TABLE thread_usage ADD COLUMN tracer_ns INTEGER NOT NULL DEFAULT 0;

CREATE TABLE calibrations (
  session_id INTEGER NOT NULL,
  what TEXT NOT NULL,
  ns REAL NOT NULL
) STRICT;

CREATE TABLE agent_usage (
  bucket_ns INTEGER NOT NULL,
  session_id INTEGER NOT NULL,
  wall_ns INTEGER NOT NULL,
  cpu_ns INTEGER NOT NULL,
  hooks_ns INTEGER NOT NULL,
  call_program_ns INTEGER NOT NULL,
  PRIMARY KEY (bucket_ns, session_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE rung_changes (
  session_id INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  process_id INTEGER NOT NULL,
  op_id INTEGER NOT NULL,
  rung TEXT NOT NULL,
  fraction REAL NOT NULL,
  reason TEXT NOT NULL
) STRICT;
CREATE INDEX rung_changes_time ON rung_changes (at_ns);
