//! Views of the lines of programs that call, wait and compute.

use super::{View, declared_views};

pub(super) const VIEWS: &[View] = declared_views! {
    stack_lines "The frames of each stack, one row per frame, from the innermost outwards." {
        stack_id: stack_frames.stack_id;
        position: stack_frames.position;
        kind: frames.kind;
        function: frames.function;
        file: frames.file;
        line: frames.line;
        module: frames.module;
        address: frames.address;
        is_inlined: frames.is_inlined;
    } from "stack_frames
            CROSS JOIN frames ON frames.id = stack_frames.frame_id";

    // A line of a function is one place, whichever of its instructions was running. Beside max(), a plain column is that of
    // the row with the maximum.
    call_sites "Which lines make the calls: one row per function, thread and place in the program, over the calls whose stacks were taken. The place is the innermost Python frame outside of the standard library and of installed packages; where there is none, the innermost Python frame; else the innermost native frame outside of the C library and of the GPU's own libraries, or the innermost of all. `SELECT * FROM call_sites ORDER BY total_ns DESC LIMIT 20` is a good start. `call_stats` has all calls." {
        op: ops.name "The function that was called.";
        pid: processes.pid;
        tid: threads.tid;
        comm: threads.comm;
        kind: frames.kind "`python`, `native`, `jit` or `kernel`, as in `stack_lines`; empty, as is all about the place, where the stack has no frames.";
        function: frames.function "The function; an empty text where it has no name.";
        file: frames.file;
        line: frames.line "The line.";
        module: frames.module "The file that holds the code.";
        address = "CASE WHEN frames.function = '' THEN frames.address END" INTEGER "" "The address in it, of code without a name.";
        calls = "count(*)" INTEGER "calls" "Calls made there.";
        total_ns = "sum(calls.duration_ns)" INTEGER "ns" "Sum of their durations.";
        runqueue_ns = "sum(calls.runqueue_ns)" INTEGER "ns" "Of that, runnable while another thread had the CPU.";
        blocked_ns = "sum(calls.blocked_ns)" INTEGER "ns" "Of that, blocked.";
        max_ns = "max(calls.duration_ns)" INTEGER "ns" "The longest.";
        max_stack_id: calls.stack_id "Stack of the longest: `SELECT * FROM stack_lines WHERE stack_id = ...`.";
        session_id: processes.session_id;
    } from "calls INDEXED BY calls_stacks
            CROSS JOIN shapes ON shapes.id = calls.shape_id
            CROSS JOIN ops ON ops.id = shapes.op_id
            CROSS JOIN threads ON threads.id = shapes.thread_id
            CROSS JOIN processes ON processes.id = threads.process_id
            LEFT JOIN stacks ON stacks.id = calls.stack_id
            LEFT JOIN frames ON frames.id = stacks.site_frame_id
            WHERE calls.stack_id IS NOT NULL
            GROUP BY shapes.op_id, shapes.thread_id, 5, 6, 7, 8, 9, 10";

    wait_sites "Which lines wait: one row per reason, thread and place in the program, over the stretches off the CPU whose stacks were taken. The place is chosen as in `call_sites`. `thread_times` has all waits." {
        blocked_on: stretches.reason "What was waited for, as in `sched_events`; empty for threads that were preempted.";
        pid: processes.pid;
        tid: threads.tid "Thread that waited.";
        comm: threads.comm;
        kind: frames.kind "`python`, `native`, `jit` or `kernel`, as in `stack_lines`; empty, as is all about the place, where the stack has no frames.";
        function: frames.function "The function; an empty text where it has no name.";
        file: frames.file;
        line: frames.line "The line.";
        module: frames.module "The file that holds the code.";
        address = "CASE WHEN frames.function = '' THEN frames.address END" INTEGER "" "The address in it, of code without a name.";
        waits = "count(*)" INTEGER "stretches" "Waits there.";
        total_ns = "sum(stretches.blocked_ns + stretches.runqueue_ns)" INTEGER "ns" "Sum of their durations, off the CPU.";
        blocked_ns = "sum(stretches.blocked_ns)" INTEGER "ns" "Of that, blocked.";
        runqueue_ns = "sum(stretches.runqueue_ns)" INTEGER "ns" "Of that, runnable without a CPU.";
        max_ns = "max(stretches.blocked_ns + stretches.runqueue_ns)" INTEGER "ns" "The longest.";
        max_stack_id: stretches.stack_id "Stack of the longest.";
        session_id: processes.session_id;
    } from "stretches
            CROSS JOIN threads ON threads.id = stretches.thread_id
            CROSS JOIN processes ON processes.id = threads.process_id
            LEFT JOIN stacks ON stacks.id = stretches.stack_id
            LEFT JOIN frames ON frames.id = stacks.site_frame_id
            WHERE stretches.stack_id IS NOT NULL
            GROUP BY stretches.reason, stretches.thread_id, 5, 6, 7, 8, 9, 10";

    waker_sites "Which lines end the waits of others: one row per reason, thread that waited, thread that ended it, and place in the program of the latter. The place is chosen as in `call_sites`." {
        blocked_on: stretches.reason "What was waited for, as in `sched_events`.";
        pid: processes.pid "Process that waited.";
        tid: threads.tid "Thread that waited.";
        comm: threads.comm;
        woken_by_pid = "waker_processes.pid" INTEGER "" "Process that ended the waits.";
        woken_by_tid = "wakers.tid" INTEGER "" "Thread that did.";
        woken_by_comm = "wakers.comm" TEXT "" "Name of that thread.";
        kind: frames.kind "`python`, `native`, `jit` or `kernel`, as in `stack_lines`; empty, as is all about the place, where the stack has no frames.";
        function: frames.function "The function; an empty text where it has no name.";
        file: frames.file;
        line: frames.line "The line.";
        module: frames.module "The file that holds the code.";
        address = "CASE WHEN frames.function = '' THEN frames.address END" INTEGER "" "The address in it, of code without a name.";
        waits = "count(*)" INTEGER "stretches" "Waits that were ended there.";
        total_ns = "sum(stretches.blocked_ns)" INTEGER "ns" "Sum of their blocked time.";
        max_ns = "max(stretches.blocked_ns)" INTEGER "ns" "The longest.";
        max_stack_id: stretches.waker_stack_id "Stack of who ended the longest.";
        session_id: processes.session_id;
    } from "stretches
            CROSS JOIN threads ON threads.id = stretches.thread_id
            CROSS JOIN processes ON processes.id = threads.process_id
            LEFT JOIN threads AS wakers ON wakers.id = stretches.woken_by_thread_id
            LEFT JOIN processes AS waker_processes ON waker_processes.id = wakers.process_id
            LEFT JOIN stacks ON stacks.id = stretches.waker_stack_id
            LEFT JOIN frames ON frames.id = stacks.site_frame_id
            WHERE stretches.waker_stack_id IS NOT NULL
            GROUP BY stretches.reason, stretches.thread_id, stretches.woken_by_thread_id, 8, 9, 10, 11, 12, 13";

    run_sites "Which lines threads were at when they were seen running, some 50 times a second: what they compute. The same lines count together." {
        pid: processes.pid;
        tid: threads.tid;
        comm: threads.comm;
        kind: frames.kind "As in `frames`.";
        function: frames.function "The function; empty when not known.";
        file: frames.file "The source file, where known.";
        line: frames.line "The line that was executing, where known.";
        module: frames.module "Path of the file that holds the code.";
        address = "CASE WHEN frames.function = '' THEN frames.address END" INTEGER "" "Address in the module when the function is not known.";
        samples = "sum(stack_samples.count)" INTEGER "" "How often the thread was seen there.";
        max_samples = "max(stack_samples.count)" INTEGER "" "How often in one second with the same stack, at most.";
        max_stack_id: stack_samples.stack_id "That stack.";
        session_id: processes.session_id;
    } from "stack_samples
            CROSS JOIN threads ON threads.id = stack_samples.thread_id
            CROSS JOIN processes ON processes.id = threads.process_id
            LEFT JOIN stacks ON stacks.id = stack_samples.stack_id
            LEFT JOIN frames ON frames.id = stacks.site_frame_id
            GROUP BY stack_samples.thread_id, 4, 5, 6, 7, 8, 9";

    stack_stats "How the walks over stacks ended, per second: how far stacks can be relied on. Exact, also for stacks that were not kept." {
        bucket_ns: stack_walks.bucket_ns;
        moment: stack_walks.moment;
        end: stack_walks.end;
        python_end: stack_walks.python_end;
        ..stack_walks;
        session_id: stack_walks.session_id;
    } from "stack_walks";
};
