-- What threads wait on and for how long, work the kernel does in their time, and block I/O. Nothing of this is known of
-- earlier sessions: their sums of it are 0.
ALTER TABLE processes ADD COLUMN cpu_quota REAL;
ALTER TABLE processes ADD COLUMN memory_limit INTEGER;

ALTER TABLE thread_usage ADD COLUMN throttled_ns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread_usage ADD COLUMN reclaim_ns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread_usage ADD COLUMN compaction_ns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread_usage ADD COLUMN ioctl_call_ns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread_usage ADD COLUMN major_faults INTEGER NOT NULL DEFAULT 0;

CREATE INDEX calls_memory ON calls (start_ns) WHERE address IS NOT NULL;

CREATE TABLE wait_targets (
  id INTEGER PRIMARY KEY,
  process_id INTEGER NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL
) STRICT;

CREATE TABLE stretches (
  start_ns INTEGER PRIMARY KEY,
  thread_id INTEGER NOT NULL,
  blocked_ns INTEGER NOT NULL,
  runqueue_ns INTEGER NOT NULL,
  is_throttled INTEGER NOT NULL,
  reason TEXT,
  op_id INTEGER,
  target_id INTEGER,
  woken_by_thread_id INTEGER,
  taken_by_thread_id INTEGER,
  taken_by_ns INTEGER,
  also_taken_by_thread_id INTEGER,
  also_taken_by_ns INTEGER,
  all_count INTEGER NOT NULL,
  all_blocked_ns INTEGER NOT NULL,
  all_runqueue_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE kernel_work (
  start_ns INTEGER PRIMARY KEY,
  thread_id INTEGER NOT NULL,
  kind TEXT NOT NULL,
  duration_ns INTEGER NOT NULL,
  op_id INTEGER,
  target_id INTEGER,
  code INTEGER,
  all_count INTEGER NOT NULL,
  all_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE io_requests (
  start_ns INTEGER PRIMARY KEY,
  duration_ns INTEGER NOT NULL,
  device TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  is_write INTEGER NOT NULL,
  issuer_thread_id INTEGER,
  waiter_thread_id INTEGER NOT NULL
) STRICT;

CREATE TABLE io_usage (
  bucket_ns INTEGER NOT NULL,
  process_id INTEGER NOT NULL,
  device TEXT NOT NULL,
  requests INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  busy_ns INTEGER NOT NULL,
  PRIMARY KEY (bucket_ns, process_id, device)
) STRICT, WITHOUT ROWID;
