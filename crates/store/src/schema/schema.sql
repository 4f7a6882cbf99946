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
  end_reason TEXT
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
  text TEXT NOT NULL
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
  container_id TEXT
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
  PRIMARY KEY (bucket_ns, thread_id)
) STRICT, WITHOUT ROWID;

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

-- CROSS JOIN keeps the calls outermost: they are found by time, and everything else by its id.
CREATE VIEW cuda_events AS
SELECT
  calls.start_ns AS id,
  calls.start_ns AS timestamp_ns,
  calls.duration_ns AS duration_ns,
  max(calls.duration_ns - calls.runqueue_ns - calls.blocked_ns, 0) AS running_ns,
  calls.runqueue_ns AS runqueue_ns,
  calls.blocked_ns AS blocked_ns,
  processes.pid AS pid,
  threads.tid AS tid,
  threads.comm AS comm,
  ops.name AS op,
  ops.layer AS layer,
  ops.class AS class,
  CASE WHEN ops.layer = 'runtime' THEN ops.name WHEN modules.is_runtime THEN ops.runtime_name END AS runtime_op,
  shapes.device AS device,
  shapes.stream AS stream,
  calls.bytes AS bytes,
  shapes.direction AS direction,
  calls.ret_code AS ret_code,
  processes.cgroup_id AS cgroup_id,
  calls.stack_id AS stack_id,
  calls.start_ns - calls.parent_delta_ns AS parent_id,
  modules.path AS caller,
  shapes.handle AS handle,
  calls.address AS address,
  waits.reason AS blocked_on,
  waker_processes.pid AS woken_by_pid,
  wakers.tid AS woken_by_tid,
  wakers.comm AS woken_by_comm,
  preemptor_processes.pid AS preempted_by_pid,
  preemptors.tid AS preempted_by_tid,
  preemptors.comm AS preempted_by_comm,
  processes.comm AS process_comm,
  processes.container_id AS container_id,
  shapes.session_id AS session_id
FROM calls
CROSS JOIN shapes ON shapes.id = calls.shape_id
CROSS JOIN ops ON ops.id = shapes.op_id
CROSS JOIN threads ON threads.id = shapes.thread_id
CROSS JOIN processes ON processes.id = threads.process_id
LEFT JOIN modules ON modules.id = shapes.module_id
LEFT JOIN waits ON waits.id = calls.wait_id
LEFT JOIN threads AS wakers ON wakers.id = waits.woken_by_thread_id
LEFT JOIN processes AS waker_processes ON waker_processes.id = wakers.process_id
LEFT JOIN threads AS preemptors ON preemptors.id = waits.preempted_by_thread_id
LEFT JOIN processes AS preemptor_processes ON preemptor_processes.id = preemptors.process_id;

CREATE VIEW call_stats AS
SELECT
  call_counts.bucket_ns AS bucket_ns,
  processes.pid AS pid,
  threads.tid AS tid,
  threads.comm AS comm,
  ops.name AS op,
  ops.layer AS layer,
  ops.class AS class,
  ops.runtime_name AS runtime_name,
  call_counts.count AS count,
  call_counts.sum_ns AS sum_ns,
  call_counts.min_ns AS min_ns,
  call_counts.max_ns AS max_ns,
  call_counts.runqueue_ns AS runqueue_ns,
  call_counts.blocked_ns AS blocked_ns,
  call_counts.bytes AS bytes,
  call_counts.errors AS errors,
  call_counts.histogram AS histogram,
  call_counts.fraction AS fraction,
  processes.session_id AS session_id
FROM call_counts
CROSS JOIN ops ON ops.id = call_counts.op_id
CROSS JOIN threads ON threads.id = call_counts.thread_id
CROSS JOIN processes ON processes.id = threads.process_id;

CREATE VIEW thread_times AS
SELECT *, max(wall_ns - runqueue_ns - blocked_ns, 0) AS running_ns
FROM (
  SELECT
    thread_usage.bucket_ns AS bucket_ns,
    processes.pid AS pid,
    threads.tid AS tid,
    threads.comm AS comm,
    wall_ns,
    runqueue_ns,
    futex_ns + io_ns + fault_ns + sleep_ns + poll_ns + stream_ns + ioctl_ns + other_ns AS blocked_ns,
    futex_ns,
    io_ns,
    fault_ns,
    sleep_ns,
    poll_ns,
    stream_ns,
    ioctl_ns,
    other_ns,
    in_calls_ns,
    in_calls_runqueue_ns,
    in_calls_blocked_ns,
    processes.session_id AS session_id
  FROM thread_usage
  CROSS JOIN threads ON threads.id = thread_usage.thread_id
  CROSS JOIN processes ON processes.id = threads.process_id
);
