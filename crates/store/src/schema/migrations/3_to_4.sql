-- Stacks: where calls and waits come from, and what whoever ended a wait was doing. None were taken in earlier sessions.
ALTER TABLE stretches ADD COLUMN stack_id INTEGER;
ALTER TABLE stretches ADD COLUMN waker_stack_id INTEGER;

CREATE INDEX calls_stacks ON calls (start_ns) WHERE stack_id IS NOT NULL;

CREATE TABLE frames (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  function TEXT NOT NULL,
  file TEXT,
  line INTEGER,
  module TEXT,
  address INTEGER NOT NULL,
  is_inlined INTEGER NOT NULL
) STRICT;

CREATE TABLE stacks (
  id INTEGER PRIMARY KEY,
  depth INTEGER,
  end TEXT,
  python_end TEXT,
  site_frame_id INTEGER
) STRICT;

CREATE TABLE stack_frames (
  stack_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  frame_id INTEGER NOT NULL,
  PRIMARY KEY (stack_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE kernels (
  process_id INTEGER NOT NULL,
  handle INTEGER NOT NULL,
  name TEXT NOT NULL,
  PRIMARY KEY (process_id, handle)
) STRICT, WITHOUT ROWID;

CREATE TABLE stack_samples (
  bucket_ns INTEGER NOT NULL,
  thread_id INTEGER NOT NULL,
  stack_id INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (bucket_ns, thread_id, stack_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE stack_walks (
  bucket_ns INTEGER NOT NULL,
  session_id INTEGER NOT NULL,
  moment TEXT NOT NULL,
  end TEXT NOT NULL,
  python_end TEXT NOT NULL,
  count INTEGER NOT NULL,
  walking_ns INTEGER NOT NULL,
  PRIMARY KEY (bucket_ns, session_id, moment, end, python_end)
) STRICT, WITHOUT ROWID;
