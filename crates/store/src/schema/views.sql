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
  kernels.name AS kernel,
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
LEFT JOIN kernels ON kernels.process_id = threads.process_id AND kernels.handle = shapes.handle AND ops.class = 'launch'
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
  call_counts.estimate AS estimate,
  call_counts.variance AS variance,
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
    tracer_ns,
    throttled_ns,
    reclaim_ns,
    compaction_ns,
    ioctl_call_ns,
    major_faults,
    processes.session_id AS session_id
  FROM thread_usage
  CROSS JOIN threads ON threads.id = thread_usage.thread_id
  CROSS JOIN processes ON processes.id = threads.process_id
);

CREATE VIEW rungs AS
SELECT
  rung_changes.at_ns AS at_ns,
  processes.pid AS pid,
  processes.comm AS comm,
  ops.name AS op,
  ops.layer AS layer,
  rung_changes.rung AS rung,
  rung_changes.fraction AS fraction,
  rung_changes.reason AS reason,
  rung_changes.session_id AS session_id
FROM rung_changes
CROSS JOIN ops ON ops.id = rung_changes.op_id
CROSS JOIN processes ON processes.id = rung_changes.process_id;

CREATE VIEW sched_events AS
SELECT
  stretches.start_ns AS id,
  stretches.start_ns AS timestamp_ns,
  stretches.blocked_ns + stretches.runqueue_ns AS duration_ns,
  stretches.blocked_ns AS blocked_ns,
  stretches.runqueue_ns AS runqueue_ns,
  stretches.is_throttled AS is_throttled,
  processes.pid AS pid,
  threads.tid AS tid,
  threads.comm AS comm,
  stretches.reason AS blocked_on,
  ops.name AS op,
  wait_targets.kind AS target_kind,
  wait_targets.name AS target,
  waker_processes.pid AS woken_by_pid,
  wakers.tid AS woken_by_tid,
  wakers.comm AS woken_by_comm,
  taker_processes.pid AS taken_by_pid,
  takers.tid AS taken_by_tid,
  takers.comm AS taken_by_comm,
  stretches.taken_by_ns AS taken_by_ns,
  other_taker_processes.pid AS also_taken_by_pid,
  other_takers.tid AS also_taken_by_tid,
  other_takers.comm AS also_taken_by_comm,
  stretches.also_taken_by_ns AS also_taken_by_ns,
  stretches.all_count AS all_count,
  stretches.all_blocked_ns AS all_blocked_ns,
  stretches.all_runqueue_ns AS all_runqueue_ns,
  processes.session_id AS session_id,
  stretches.stack_id AS stack_id,
  stretches.waker_stack_id AS waker_stack_id
FROM stretches
CROSS JOIN threads ON threads.id = stretches.thread_id
CROSS JOIN processes ON processes.id = threads.process_id
LEFT JOIN ops ON ops.id = stretches.op_id
LEFT JOIN wait_targets ON wait_targets.id = stretches.target_id
LEFT JOIN threads AS wakers ON wakers.id = stretches.woken_by_thread_id
LEFT JOIN processes AS waker_processes ON waker_processes.id = wakers.process_id
LEFT JOIN threads AS takers ON takers.id = stretches.taken_by_thread_id
LEFT JOIN processes AS taker_processes ON taker_processes.id = takers.process_id
LEFT JOIN threads AS other_takers ON other_takers.id = stretches.also_taken_by_thread_id
LEFT JOIN processes AS other_taker_processes ON other_taker_processes.id = other_takers.process_id;

CREATE VIEW kernel_events AS
SELECT
  kernel_work.start_ns AS id,
  kernel_work.start_ns AS timestamp_ns,
  kernel_work.duration_ns AS duration_ns,
  processes.pid AS pid,
  threads.tid AS tid,
  threads.comm AS comm,
  kernel_work.kind AS kind,
  ops.name AS op,
  wait_targets.kind AS target_kind,
  wait_targets.name AS target,
  kernel_work.code AS code,
  kernel_work.all_count AS all_count,
  kernel_work.all_ns AS all_ns,
  processes.session_id AS session_id
FROM kernel_work
CROSS JOIN threads ON threads.id = kernel_work.thread_id
CROSS JOIN processes ON processes.id = threads.process_id
LEFT JOIN ops ON ops.id = kernel_work.op_id
LEFT JOIN wait_targets ON wait_targets.id = kernel_work.target_id;

CREATE VIEW io_events AS
SELECT
  io_requests.start_ns AS id,
  io_requests.start_ns AS timestamp_ns,
  io_requests.duration_ns AS duration_ns,
  io_requests.device AS device,
  io_requests.bytes AS bytes,
  CASE WHEN io_requests.is_write THEN 'write' ELSE 'read' END AS direction,
  processes.pid AS pid,
  threads.tid AS tid,
  threads.comm AS comm,
  issuer_processes.pid AS issuer_pid,
  issuers.tid AS issuer_tid,
  issuers.comm AS issuer_comm,
  processes.session_id AS session_id
FROM io_requests
CROSS JOIN threads ON threads.id = io_requests.waiter_thread_id
CROSS JOIN processes ON processes.id = threads.process_id
LEFT JOIN threads AS issuers ON issuers.id = io_requests.issuer_thread_id
LEFT JOIN processes AS issuer_processes ON issuer_processes.id = issuers.process_id;

CREATE VIEW io_stats AS
SELECT
  io_usage.bucket_ns AS bucket_ns,
  processes.pid AS pid,
  processes.comm AS comm,
  io_usage.device AS device,
  io_usage.requests AS requests,
  io_usage.bytes AS bytes,
  io_usage.busy_ns AS busy_ns,
  processes.session_id AS session_id
FROM io_usage
CROSS JOIN processes ON processes.id = io_usage.process_id;

CREATE VIEW stack_lines AS
SELECT
  stack_frames.stack_id AS stack_id,
  stack_frames.position AS position,
  frames.kind AS kind,
  frames.function AS function,
  frames.file AS file,
  frames.line AS line,
  frames.module AS module,
  frames.address AS address,
  frames.is_inlined AS is_inlined
FROM stack_frames
CROSS JOIN frames ON frames.id = stack_frames.frame_id;

-- A line of a function is one place, whichever of its instructions was running. Beside max(), a plain column is that of
-- the row with the maximum.
CREATE VIEW call_sites AS
SELECT
  ops.name AS op,
  processes.pid AS pid,
  threads.tid AS tid,
  threads.comm AS comm,
  frames.kind AS kind,
  frames.function AS function,
  frames.file AS file,
  frames.line AS line,
  frames.module AS module,
  CASE WHEN frames.function = '' THEN frames.address END AS address,
  count(*) AS calls,
  sum(calls.duration_ns) AS total_ns,
  sum(calls.runqueue_ns) AS runqueue_ns,
  sum(calls.blocked_ns) AS blocked_ns,
  max(calls.duration_ns) AS max_ns,
  calls.stack_id AS max_stack_id,
  processes.session_id AS session_id
FROM calls INDEXED BY calls_stacks
CROSS JOIN shapes ON shapes.id = calls.shape_id
CROSS JOIN ops ON ops.id = shapes.op_id
CROSS JOIN threads ON threads.id = shapes.thread_id
CROSS JOIN processes ON processes.id = threads.process_id
LEFT JOIN stacks ON stacks.id = calls.stack_id
LEFT JOIN frames ON frames.id = stacks.site_frame_id
WHERE calls.stack_id IS NOT NULL
GROUP BY shapes.op_id, shapes.thread_id, 5, 6, 7, 8, 9, 10;

CREATE VIEW wait_sites AS
SELECT
  stretches.reason AS blocked_on,
  processes.pid AS pid,
  threads.tid AS tid,
  threads.comm AS comm,
  frames.kind AS kind,
  frames.function AS function,
  frames.file AS file,
  frames.line AS line,
  frames.module AS module,
  CASE WHEN frames.function = '' THEN frames.address END AS address,
  count(*) AS waits,
  sum(stretches.blocked_ns + stretches.runqueue_ns) AS total_ns,
  sum(stretches.blocked_ns) AS blocked_ns,
  sum(stretches.runqueue_ns) AS runqueue_ns,
  max(stretches.blocked_ns + stretches.runqueue_ns) AS max_ns,
  stretches.stack_id AS max_stack_id,
  processes.session_id AS session_id
FROM stretches
CROSS JOIN threads ON threads.id = stretches.thread_id
CROSS JOIN processes ON processes.id = threads.process_id
LEFT JOIN stacks ON stacks.id = stretches.stack_id
LEFT JOIN frames ON frames.id = stacks.site_frame_id
WHERE stretches.stack_id IS NOT NULL
GROUP BY stretches.reason, stretches.thread_id, 5, 6, 7, 8, 9, 10;

CREATE VIEW waker_sites AS
SELECT
  stretches.reason AS blocked_on,
  processes.pid AS pid,
  threads.tid AS tid,
  threads.comm AS comm,
  waker_processes.pid AS woken_by_pid,
  wakers.tid AS woken_by_tid,
  wakers.comm AS woken_by_comm,
  frames.kind AS kind,
  frames.function AS function,
  frames.file AS file,
  frames.line AS line,
  frames.module AS module,
  CASE WHEN frames.function = '' THEN frames.address END AS address,
  count(*) AS waits,
  sum(stretches.blocked_ns) AS total_ns,
  max(stretches.blocked_ns) AS max_ns,
  stretches.waker_stack_id AS max_stack_id,
  processes.session_id AS session_id
FROM stretches
CROSS JOIN threads ON threads.id = stretches.thread_id
CROSS JOIN processes ON processes.id = threads.process_id
LEFT JOIN threads AS wakers ON wakers.id = stretches.woken_by_thread_id
LEFT JOIN processes AS waker_processes ON waker_processes.id = wakers.process_id
LEFT JOIN stacks ON stacks.id = stretches.waker_stack_id
LEFT JOIN frames ON frames.id = stacks.site_frame_id
WHERE stretches.waker_stack_id IS NOT NULL
GROUP BY stretches.reason, stretches.thread_id, stretches.woken_by_thread_id, 8, 9, 10, 11, 12, 13;

CREATE VIEW run_sites AS
SELECT
  processes.pid AS pid,
  threads.tid AS tid,
  threads.comm AS comm,
  frames.kind AS kind,
  frames.function AS function,
  frames.file AS file,
  frames.line AS line,
  frames.module AS module,
  CASE WHEN frames.function = '' THEN frames.address END AS address,
  sum(stack_samples.count) AS samples,
  max(stack_samples.count) AS max_samples,
  stack_samples.stack_id AS max_stack_id,
  processes.session_id AS session_id
FROM stack_samples
CROSS JOIN threads ON threads.id = stack_samples.thread_id
CROSS JOIN processes ON processes.id = threads.process_id
LEFT JOIN stacks ON stacks.id = stack_samples.stack_id
LEFT JOIN frames ON frames.id = stacks.site_frame_id
GROUP BY stack_samples.thread_id, 4, 5, 6, 7, 8, 9;

CREATE VIEW stack_stats AS
SELECT
  stack_walks.bucket_ns AS bucket_ns,
  stack_walks.moment AS moment,
  stack_walks.end AS end,
  stack_walks.python_end AS python_end,
  stack_walks.count AS count,
  stack_walks.walking_ns AS walking_ns,
  stack_walks.session_id AS session_id
FROM stack_walks;

CREATE VIEW sample_values AS
SELECT
  samples.at_ns AS at_ns,
  sample_series.name AS name,
  sample_series.device AS device,
  samples.value AS value,
  sample_series.unit AS unit,
  sample_series.session_id AS session_id
FROM samples
CROSS JOIN sample_series ON sample_series.id = samples.series_id;

CREATE VIEW labels AS
SELECT
  processes.pid AS pid,
  processes.comm AS comm,
  process_labels.key AS key,
  process_labels.value AS value,
  process_labels.process_id AS process_id,
  processes.session_id AS session_id
FROM process_labels
CROSS JOIN processes ON processes.id = process_labels.process_id;
