//! Views of where the time of threads went.

use super::{View, declared_views};

pub(super) const VIEWS: &[View] = declared_views! {
    thread_times "Where each watched thread's wall time went, per second, inside traced calls and outside of them." {
        bucket_ns: thread_usage.bucket_ns;
        pid: processes.pid;
        tid: threads.tid;
        comm: threads.comm;
        wall_ns: thread_usage.wall_ns;
        runqueue_ns: thread_usage.runqueue_ns;
        blocked_ns = "blocked_ns" INTEGER "ns" "Blocked, for any reason.";
        ..thread_usage;
        session_id: processes.session_id;
        running_ns = "max(wall_ns - runqueue_ns - blocked_ns, 0)" INTEGER "ns" "On a CPU.";
    } from "(
              SELECT *, futex_ns + io_ns + fault_ns + sleep_ns + poll_ns + stream_ns + ioctl_ns + other_ns AS blocked_ns
              FROM thread_usage
            ) AS thread_usage
            CROSS JOIN threads ON threads.id = thread_usage.thread_id
            CROSS JOIN processes ON processes.id = threads.process_id";

    sched_events "Stretches of time that watched threads were off the CPU: blocked, then runnable until they ran again; either part may be missing. Short stretches share a row: the `all_` columns say what a row stands for, and their sums are exact." {
        id: stretches.start_ns "Names the stretch: its start, made unique by adding a few nanoseconds where two stretches started at once.";
        timestamp_ns: stretches.start_ns "When the thread left the CPU. Equal to `id`.";
        duration_ns = "stretches.blocked_ns + stretches.runqueue_ns" INTEGER "ns" "Until it was on a CPU again: `blocked_ns + runqueue_ns`.";
        blocked_ns: stretches.blocked_ns;
        runqueue_ns: stretches.runqueue_ns;
        is_throttled: stretches.is_throttled;
        pid: processes.pid;
        tid: threads.tid;
        comm: threads.comm;
        blocked_on: stretches.reason "What it waited for: `futex`, `io`, `fault`, `sleep`, `poll`, `stream`, `ioctl`, `other`; empty when it was preempted.";
        op: ops.name "The innermost traced call it was in.";
        target_kind: wait_targets.kind "What kind of thing it waited on: `lock` (a mutex), `signal` (a condition variable, a semaphore, a queue), `gil` (Python's interpreter lock), `pipe`, `unix`, `tcp`, `socket` (any other one), `eventfd`, `file`, `device` or `other`; empty where that is not known.";
        target: wait_targets.name;
        woken_by_pid = "waker_processes.pid" INTEGER "" "Process that made it runnable; empty when an interrupt did, or when it was preempted.";
        woken_by_tid = "wakers.tid" INTEGER "" "Thread that did.";
        woken_by_comm = "wakers.comm" TEXT "" "Name of that thread.";
        taken_by_pid = "taker_processes.pid" INTEGER "" "Process that ran longest on its CPU while it was runnable.";
        taken_by_tid = "takers.tid" INTEGER "" "Thread that did.";
        taken_by_comm = "takers.comm" TEXT "" "Name of that thread.";
        taken_by_ns: stretches.taken_by_ns;
        also_taken_by_pid = "other_taker_processes.pid" INTEGER "" "Process that ran there second longest.";
        also_taken_by_tid = "other_takers.tid" INTEGER "" "Thread that did.";
        also_taken_by_comm = "other_takers.comm" TEXT "" "Name of that thread.";
        also_taken_by_ns: stretches.also_taken_by_ns;
        ..stretches;
        session_id: processes.session_id;
        stack_id: stretches.stack_id "Where in the program it waited, when its stack was taken: `stacks.id`, with its frames in `stack_lines`.";
        waker_stack_id: stretches.waker_stack_id;
    } from "stretches
            CROSS JOIN threads ON threads.id = stretches.thread_id
            CROSS JOIN processes ON processes.id = threads.process_id
            LEFT JOIN ops ON ops.id = stretches.op_id
            LEFT JOIN wait_targets ON wait_targets.id = stretches.target_id
            LEFT JOIN threads AS wakers ON wakers.id = stretches.woken_by_thread_id
            LEFT JOIN processes AS waker_processes ON waker_processes.id = wakers.process_id
            LEFT JOIN threads AS takers ON takers.id = stretches.taken_by_thread_id
            LEFT JOIN processes AS taker_processes ON taker_processes.id = takers.process_id
            LEFT JOIN threads AS other_takers ON other_takers.id = stretches.also_taken_by_thread_id
            LEFT JOIN processes AS other_taker_processes ON other_taker_processes.id = other_takers.process_id";

    unfinished "What threads that make calls have been in for two seconds and more, and had not come out of when they were last looked at. A call that never returns is in no other table." {
        timestamp_ns: standstills.start_ns;
        seen_ns: standstills.seen_ns;
        duration_ns = "standstills.seen_ns - standstills.start_ns" INTEGER "ns" "From the start until it was last seen there.";
        pid: processes.pid;
        tid: threads.tid;
        comm: threads.comm;
        op: ops.name "The outermost traced call that it was in; empty for a wait outside of traced calls.";
        blocked_on: standstills.reason;
        stack_id: standstills.stack_id "Where in the program: `stacks.id`, with its frames in `stack_lines`.";
        session_id: processes.session_id;
    } from "standstills
            CROSS JOIN threads ON threads.id = standstills.thread_id
            CROSS JOIN processes ON processes.id = threads.process_id
            LEFT JOIN ops ON ops.id = standstills.op_id";

    kernel_events "Work the kernel did in a watched thread's own time, with the waits inside of it. Short spans share a row: the `all_` columns say what a row stands for." {
        id: kernel_work.start_ns "Names the span: its start, made unique by adding a few nanoseconds.";
        timestamp_ns: kernel_work.start_ns "When it began. Equal to `id`.";
        duration_ns: kernel_work.duration_ns;
        pid: processes.pid;
        tid: threads.tid;
        comm: threads.comm;
        kind: kernel_work.kind;
        op: ops.name "The innermost traced call the thread was in.";
        target_kind: wait_targets.kind "What kind of file an ioctl was made on, as in `sched_events`.";
        target: wait_targets.name "Which one.";
        code: kernel_work.code;
        ..kernel_work;
        session_id: processes.session_id;
    } from "kernel_work
            CROSS JOIN threads ON threads.id = kernel_work.thread_id
            CROSS JOIN processes ON processes.id = threads.process_id
            LEFT JOIN ops ON ops.id = kernel_work.op_id
            LEFT JOIN wait_targets ON wait_targets.id = kernel_work.target_id";

    io_events "One row per request to a block device whose completion woke a watched thread." {
        id: io_requests.start_ns "Names the request: its start, made unique by adding a few nanoseconds.";
        timestamp_ns: io_requests.start_ns "When it was handed to the device. Equal to `id`.";
        duration_ns: io_requests.duration_ns;
        device: io_requests.device;
        bytes: io_requests.bytes;
        direction = "CASE WHEN io_requests.is_write THEN 'write' ELSE 'read' END" TEXT "" "`read` or `write`.";
        pid: processes.pid "Process that waited for it.";
        tid: threads.tid "Thread that waited.";
        comm: threads.comm "Name of that thread.";
        issuer_pid = "issuer_processes.pid" INTEGER "" "Process that handed it to the device, where known; often a kernel thread.";
        issuer_tid = "issuers.tid" INTEGER "" "Thread that did.";
        issuer_comm = "issuers.comm" TEXT "" "Name of that thread.";
        session_id: processes.session_id;
    } from "io_requests
            CROSS JOIN threads ON threads.id = io_requests.waiter_thread_id
            CROSS JOIN processes ON processes.id = threads.process_id
            LEFT JOIN threads AS issuers ON issuers.id = io_requests.issuer_thread_id
            LEFT JOIN processes AS issuer_processes ON issuer_processes.id = issuers.process_id";

    io_stats "What each process asked of each block device, summed per second. Only times in which a watched thread waits for I/O are covered." {
        bucket_ns: io_usage.bucket_ns;
        pid: processes.pid;
        comm: processes.comm;
        device: io_usage.device;
        ..io_usage;
        session_id: processes.session_id;
    } from "io_usage
            CROSS JOIN processes ON processes.id = io_usage.process_id";
};
