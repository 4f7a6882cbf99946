-- One row per run of the tracer.
CREATE TABLE sessions (
  id INTEGER PRIMARY KEY,
  started_ns INTEGER NOT NULL,
  version TEXT NOT NULL,
  host TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  kernel TEXT NOT NULL,
  cpus INTEGER NOT NULL,
  gpus TEXT NOT NULL,
  driver TEXT,
  command TEXT NOT NULL,
  attach_path TEXT NOT NULL,
  probe_cost_ns INTEGER,
  last_commit_ns INTEGER NOT NULL,
  stored INTEGER NOT NULL,
  ended_ns INTEGER,
  seen INTEGER,
  agent_cpu_ns INTEGER,
  end_reason TEXT,
  budget REAL,
  is_virtual_machine INTEGER
) STRICT;

CREATE TABLE calibrations (
  session_id INTEGER NOT NULL,
  what TEXT NOT NULL,
  ns REAL NOT NULL
) STRICT;

CREATE TABLE losses (
  session_id INTEGER NOT NULL,
  reason TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (session_id, reason)
) STRICT, WITHOUT ROWID;

CREATE TABLE warnings (
  session_id INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  text TEXT NOT NULL,
  kind TEXT NOT NULL DEFAULT 'other'
) STRICT;

CREATE TABLE explanations (
  session_id INTEGER PRIMARY KEY,
  at_ns INTEGER NOT NULL,
  version TEXT NOT NULL,
  explanation TEXT NOT NULL
) STRICT;

CREATE TABLE clock_anchors (
  session_id INTEGER NOT NULL,
  monotonic_ns INTEGER NOT NULL,
  unix_offset_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE processes (
  id INTEGER PRIMARY KEY,
  session_id INTEGER NOT NULL,
  pid INTEGER NOT NULL,
  parent_pid INTEGER NOT NULL,
  started_ns INTEGER NOT NULL,
  uid INTEGER NOT NULL,
  comm TEXT NOT NULL,
  exe TEXT NOT NULL,
  cmdline TEXT NOT NULL,
  cgroup_id INTEGER NOT NULL,
  cgroup TEXT NOT NULL,
  container_id TEXT,
  cpu_quota REAL,
  memory_limit INTEGER
) STRICT;

CREATE TABLE threads (
  id INTEGER PRIMARY KEY,
  process_id INTEGER NOT NULL,
  tid INTEGER NOT NULL,
  comm TEXT NOT NULL
) STRICT;

CREATE TABLE process_life (
  session_id INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  kind TEXT NOT NULL,
  pid INTEGER NOT NULL,
  child_pid INTEGER,
  status INTEGER,
  comm TEXT NOT NULL
) STRICT;
CREATE INDEX process_life_time ON process_life (at_ns);

CREATE TABLE modules (
  id INTEGER PRIMARY KEY,
  path TEXT NOT NULL,
  is_runtime INTEGER NOT NULL
) STRICT;

CREATE TABLE ops (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  layer TEXT NOT NULL,
  class TEXT NOT NULL,
  runtime_name TEXT
) STRICT;

-- What many calls have in common, so that a call is a few bytes.
CREATE TABLE shapes (
  id INTEGER PRIMARY KEY,
  session_id INTEGER NOT NULL,
  thread_id INTEGER NOT NULL,
  op_id INTEGER NOT NULL,
  device INTEGER,
  stream INTEGER,
  direction TEXT,
  handle INTEGER,
  module_id INTEGER
) STRICT;

CREATE TABLE waits (
  id INTEGER PRIMARY KEY,
  reason TEXT,
  woken_by_thread_id INTEGER,
  preempted_by_thread_id INTEGER
) STRICT;

CREATE TABLE calls (
  start_ns INTEGER PRIMARY KEY,
  duration_ns INTEGER NOT NULL,
  runqueue_ns INTEGER NOT NULL,
  blocked_ns INTEGER NOT NULL,
  shape_id INTEGER NOT NULL,
  wait_id INTEGER,
  bytes INTEGER,
  address INTEGER,
  ret_code INTEGER NOT NULL,
  parent_delta_ns INTEGER,
  stack_id INTEGER
) STRICT;
-- Allocations and frees in the order of time, without a look at all calls.
CREATE INDEX calls_memory ON calls (start_ns) WHERE address IS NOT NULL;
-- Those whose stacks were taken.
CREATE INDEX calls_stacks ON calls (start_ns) WHERE stack_id IS NOT NULL;

CREATE TABLE call_counts (
  bucket_ns INTEGER NOT NULL,
  thread_id INTEGER NOT NULL,
  op_id INTEGER NOT NULL,
  count INTEGER NOT NULL,
  sum_ns INTEGER NOT NULL,
  min_ns INTEGER NOT NULL,
  max_ns INTEGER NOT NULL,
  runqueue_ns INTEGER NOT NULL,
  blocked_ns INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  errors INTEGER NOT NULL,
  fraction REAL NOT NULL,
  histogram TEXT NOT NULL,
  estimate INTEGER NOT NULL,
  variance REAL NOT NULL,
  PRIMARY KEY (bucket_ns, thread_id, op_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE thread_usage (
  bucket_ns INTEGER NOT NULL,
  thread_id INTEGER NOT NULL,
  wall_ns INTEGER NOT NULL,
  runqueue_ns INTEGER NOT NULL,
  futex_ns INTEGER NOT NULL,
  io_ns INTEGER NOT NULL,
  fault_ns INTEGER NOT NULL,
  sleep_ns INTEGER NOT NULL,
  poll_ns INTEGER NOT NULL,
  stream_ns INTEGER NOT NULL,
  ioctl_ns INTEGER NOT NULL,
  other_ns INTEGER NOT NULL,
  in_calls_ns INTEGER NOT NULL,
  in_calls_runqueue_ns INTEGER NOT NULL,
  in_calls_blocked_ns INTEGER NOT NULL,
  tracer_ns INTEGER NOT NULL,
  throttled_ns INTEGER NOT NULL,
  reclaim_ns INTEGER NOT NULL,
  compaction_ns INTEGER NOT NULL,
  ioctl_call_ns INTEGER NOT NULL,
  major_faults INTEGER NOT NULL,
  PRIMARY KEY (bucket_ns, thread_id)
) STRICT, WITHOUT ROWID;

-- What threads wait on, so that a wait is a few bytes.
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
  all_runqueue_ns INTEGER NOT NULL,
  stack_id INTEGER,
  waker_stack_id INTEGER
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

-- One row per frame that some stack has, stored once.
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

-- A stack has its number before its frames are known by name.
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

CREATE TABLE nccl_events (
  timestamp_ns INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL,
  pid INTEGER NOT NULL,
  tid INTEGER NOT NULL,
  comm TEXT NOT NULL,
  op TEXT NOT NULL,
  rank INTEGER,
  nranks INTEGER,
  comm_id_hash INTEGER,
  bytes INTEGER,
  ret_code INTEGER NOT NULL
) STRICT;
CREATE INDEX nccl_events_time ON nccl_events (timestamp_ns);

CREATE TABLE tcp_events (
  timestamp_ns INTEGER NOT NULL,
  pid INTEGER,
  event TEXT NOT NULL,
  saddr TEXT,
  sport INTEGER,
  daddr TEXT,
  dport INTEGER
) STRICT;
CREATE INDEX tcp_events_time ON tcp_events (timestamp_ns);

CREATE TABLE schema_tables (
  name TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  description TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE schema_columns (
  table_name TEXT NOT NULL,
  column_name TEXT NOT NULL,
  type TEXT NOT NULL,
  unit TEXT,
  description TEXT NOT NULL,
  PRIMARY KEY (table_name, column_name)
) STRICT, WITHOUT ROWID;
