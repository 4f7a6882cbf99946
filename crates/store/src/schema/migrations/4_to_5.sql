-- Samples of metrics, labels of processes, and what was found. Earlier sessions have none of these.
CREATE TABLE sample_series (
  id INTEGER PRIMARY KEY,
  session_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  unit TEXT NOT NULL,
  device TEXT
) STRICT;

CREATE TABLE samples (
  at_ns INTEGER NOT NULL,
  series_id INTEGER NOT NULL,
  value REAL NOT NULL,
  PRIMARY KEY (at_ns, series_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE process_labels (
  process_id INTEGER NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (process_id, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE explanations (
  session_id INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  from_ns INTEGER NOT NULL,
  to_ns INTEGER NOT NULL,
  version TEXT NOT NULL,
  explanation TEXT NOT NULL
) STRICT;
CREATE INDEX explanations_time ON explanations (at_ns);
