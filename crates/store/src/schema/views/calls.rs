//! Views of calls, one by one and summed.

use super::{View, declared_views};

pub(super) const VIEWS: &[View] = declared_views! {
    // CROSS JOIN keeps the calls outermost: they are found by time, and everything else by its id.
    cuda_events "One row per kept call into a GPU library, with who made it and where its time went. `running_ns + runqueue_ns + blocked_ns = duration_ns`." {
        id: calls.start_ns "Names the call: its start, made unique by adding a few nanoseconds where two calls started at once.";
        timestamp_ns: calls.start_ns "When the call started. Equal to `id`.";
        duration_ns: calls.duration_ns;
        running_ns = "max(calls.duration_ns - calls.runqueue_ns - calls.blocked_ns, 0)" INTEGER "ns" "On a CPU.";
        runqueue_ns: calls.runqueue_ns;
        blocked_ns: calls.blocked_ns;
        pid: processes.pid;
        tid: threads.tid;
        comm: threads.comm;
        op: ops.name "The function that was called.";
        layer: ops.layer;
        class: ops.class;
        runtime_op = "CASE WHEN ops.layer = 'runtime' THEN ops.name WHEN modules.is_runtime THEN ops.runtime_name END" TEXT "" "The runtime function the program called: of a driver call that the runtime library issued, or `op` itself in the runtime layer.";
        device: shapes.device;
        stream: shapes.stream;
        bytes: calls.bytes;
        direction: shapes.direction;
        ret_code: calls.ret_code;
        cgroup_id: processes.cgroup_id;
        stack_id: calls.stack_id;
        parent_id = "calls.start_ns - calls.parent_delta_ns" INTEGER "ns since epoch" "`id` of the traced call this one was made inside of. That call has no row of its own when it was lost or expired.";
        caller: modules.path "The file whose code made the call.";
        handle: shapes.handle;
        kernel: kernels.name "The kernel that a launch launches, where its name could be read.";
        address: calls.address;
        blocked_on: waits.reason;
        woken_by_pid = "waker_processes.pid" INTEGER "" "Process that ended the longest blocked stretch; empty when an interrupt did.";
        woken_by_tid = "wakers.tid" INTEGER "" "Thread that ended it.";
        woken_by_comm = "wakers.comm" TEXT "" "Name of that thread.";
        preempted_by_pid = "preemptor_processes.pid" INTEGER "" "Process that took the CPU for the longest stretch in the run queue.";
        preempted_by_tid = "preemptors.tid" INTEGER "" "Thread that took it.";
        preempted_by_comm = "preemptors.comm" TEXT "" "Name of that thread.";
        process_comm: processes.comm;
        container_id: processes.container_id;
        session_id: shapes.session_id;
    } from "calls
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
            LEFT JOIN processes AS preemptor_processes ON preemptor_processes.id = preemptors.process_id";

    call_stats "Every call, kept or not, summed per second, thread and function. Calls made: `sum(estimate)`, exact or within `1.96 * sqrt(sum(variance))` of the truth (95 %)." {
        bucket_ns: call_counts.bucket_ns;
        pid: processes.pid;
        tid: threads.tid;
        comm: threads.comm;
        op: ops.name;
        layer: ops.layer;
        class: ops.class "What the function is for.";
        runtime_name: ops.runtime_name;
        count: call_counts.count;
        estimate: call_counts.estimate;
        variance: call_counts.variance;
        ..call_counts;
        histogram: call_counts.histogram "Durations as JSON, `[[lower bound in ns, calls], ...]`: eight buckets per power of two. `json_each` reads it anywhere. In `gpuwhy query`, `percentile_ns(histogram, 0.99)` is for one row and `percentile_ns(merge_histograms(histogram, fraction), 0.99)` for many: each row weighs as many calls as it stands for. `histogram_of(duration_ns)` makes one of single calls.";
        session_id: processes.session_id;
    } from "call_counts
            CROSS JOIN ops ON ops.id = call_counts.op_id
            CROSS JOIN threads ON threads.id = call_counts.thread_id
            CROSS JOIN processes ON processes.id = threads.process_id";

    rungs "One row each time the tracer begins to watch a function of a process more or less closely, to keep to its budget. It holds until the next one. Under a size cap the oldest rows go first; `call_stats.fraction` says the same per second." {
        at_ns: rung_changes.at_ns;
        pid: processes.pid;
        comm: processes.comm;
        op: ops.name;
        layer: ops.layer;
        rung: rung_changes.rung;
        fraction: rung_changes.fraction;
        reason: rung_changes.reason;
        session_id: rung_changes.session_id;
    } from "rung_changes
            CROSS JOIN ops ON ops.id = rung_changes.op_id
            CROSS JOIN processes ON processes.id = rung_changes.process_id";
};
