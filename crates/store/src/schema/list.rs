//! Every table, view and column of the file with its unit and meaning. Tests hold this list equal to
//! `tables.sql` and `views.sql`.

use super::{Column, Table};

macro_rules! tables {
    ($($kind:ident $name:ident $description:literal { $($column:ident $type:ident $unit:literal $meaning:literal;)+ })+) => {
        pub(crate) const TABLES: &[Table] = &[$(Table {
            name: stringify!($name),
            kind: stringify!($kind),
            description: $description,
            columns: &[$(Column {
                name: stringify!($column),
                kind: stringify!($type),
                unit: $unit,
                description: $meaning,
            },)+],
        },)+];
    };
}

tables! {
    view cuda_events "One row per kept call into a GPU library, with who made it and where its time went. `running_ns + runqueue_ns + blocked_ns = duration_ns`." {
        id INTEGER "ns since epoch" "Names the call: its start, made unique by adding a few nanoseconds where two calls started at once.";
        timestamp_ns INTEGER "ns since epoch" "When the call started. Equal to `id`.";
        duration_ns INTEGER "ns" "From entry to return.";
        running_ns INTEGER "ns" "On a CPU.";
        runqueue_ns INTEGER "ns" "Runnable while another thread had the CPU.";
        blocked_ns INTEGER "ns" "Off the CPU and not runnable.";
        pid INTEGER "" "Process.";
        tid INTEGER "" "Thread.";
        comm TEXT "" "The thread's name.";
        op TEXT "" "The function that was called.";
        layer TEXT "" "`driver` or `runtime`.";
        class TEXT "" "What the function is for: `launch`, `copy`, `memset`, `alloc`, `free`, `sync`, `event`, `graph`, `module`, `context`.";
        runtime_op TEXT "" "The runtime function the program called: of a driver call that the runtime library issued, or `op` itself in the runtime layer.";
        device INTEGER "" "GPU index as the program counts them.";
        stream INTEGER "" "Stream handle, 64 bits shown as a signed number.";
        bytes INTEGER "bytes" "Size copied, set or allocated.";
        direction TEXT "" "Of a copy: `HtoH`, `HtoD`, `DtoH`, `DtoD`, `PtoP`, or `default` where the driver works it out.";
        ret_code INTEGER "" "What the function returned; 0 is success.";
        cgroup_id INTEGER "" "The process's cgroup (v2), 64 bits shown as a signed number.";
        stack_id INTEGER "" "Where in the program the call was made, when its stack was taken: `stacks.id`, with its frames in `stack_lines`.";
        parent_id INTEGER "ns since epoch" "`id` of the traced call this one was made inside of. That call has no row of its own when it was lost or expired.";
        caller TEXT "" "The file whose code made the call.";
        handle INTEGER "" "Kernel, graph or module handle, 64 bits shown as a signed number.";
        kernel TEXT "" "The kernel that a launch launches, where its name could be read.";
        address INTEGER "" "Memory that was allocated or freed, 64 bits shown as a signed number.";
        blocked_on TEXT "" "What the longest blocked stretch waited for: `futex`, `io`, `fault`, `sleep`, `poll`, `stream`, `ioctl`, `other`.";
        woken_by_pid INTEGER "" "Process that ended the longest blocked stretch; empty when an interrupt did.";
        woken_by_tid INTEGER "" "Thread that ended it.";
        woken_by_comm TEXT "" "Name of that thread.";
        preempted_by_pid INTEGER "" "Process that took the CPU for the longest stretch in the run queue.";
        preempted_by_tid INTEGER "" "Thread that took it.";
        preempted_by_comm TEXT "" "Name of that thread.";
        process_comm TEXT "" "The process's name.";
        container_id TEXT "" "The process's container, where it has one.";
        session_id INTEGER "" "The run of the tracer that saw the call.";
    }
    view call_stats "Every call, kept or not, summed per second, thread and function. Calls made: `sum(estimate)`, exact or within `1.96 * sqrt(sum(variance))` of the truth (95 %)." {
        bucket_ns INTEGER "ns since epoch" "Start of the second.";
        pid INTEGER "" "Process.";
        tid INTEGER "" "Thread.";
        comm TEXT "" "The thread's name.";
        op TEXT "" "The function.";
        layer TEXT "" "`driver` or `runtime`.";
        class TEXT "" "What the function is for.";
        runtime_name TEXT "" "The runtime function that issues this driver function.";
        count INTEGER "calls" "Finished calls that were seen.";
        estimate INTEGER "calls" "Calls made, estimated. Equal to `count` when every call was seen.";
        variance REAL "calls^2" "Variance of `estimate`; 0 when it is exact. Variances of rows add up.";
        sum_ns INTEGER "ns" "Sum of the durations of the calls seen, as are all that follow.";
        min_ns INTEGER "ns" "Shortest.";
        max_ns INTEGER "ns" "Longest.";
        runqueue_ns INTEGER "ns" "Sum of their time runnable without a CPU.";
        blocked_ns INTEGER "ns" "Sum of their time blocked.";
        bytes INTEGER "bytes" "Sum of their sizes.";
        errors INTEGER "calls" "Calls that returned an error.";
        histogram TEXT "" "Durations as JSON, `[[lower bound in ns, calls], ...]`: eight buckets per power of two. `json_each` reads it anywhere. In `gpuwhy query`, `percentile_ns(histogram, 0.99)` is for one row and `percentile_ns(merge_histograms(histogram, fraction), 0.99)` for many: each row weighs as many calls as it stands for. `histogram_of(duration_ns)` makes one of single calls.";
        fraction REAL "" "Share of the time the function was probed, or of the calls that were seen where a bucket came in parts; counts are exact at 1.";
        session_id INTEGER "" "The run of the tracer.";
    }
    view thread_times "Where each watched thread's wall time went, per second, inside traced calls and outside of them." {
        bucket_ns INTEGER "ns since epoch" "Start of the second.";
        pid INTEGER "" "Process.";
        tid INTEGER "" "Thread.";
        comm TEXT "" "The thread's name.";
        wall_ns INTEGER "ns" "Time covered.";
        runqueue_ns INTEGER "ns" "Runnable while another thread had the CPU.";
        blocked_ns INTEGER "ns" "Blocked, for any reason.";
        futex_ns INTEGER "ns" "Blocked on a futex: mutexes, condition variables, joins.";
        io_ns INTEGER "ns" "Blocked on block I/O.";
        fault_ns INTEGER "ns" "Blocked in a page fault.";
        sleep_ns INTEGER "ns" "Asleep on purpose.";
        poll_ns INTEGER "ns" "Blocked in poll, select or epoll.";
        stream_ns INTEGER "ns" "Blocked on a pipe, socket or other stream.";
        ioctl_ns INTEGER "ns" "Blocked in an ioctl, usually the GPU's kernel driver.";
        other_ns INTEGER "ns" "Blocked on anything else.";
        in_calls_ns INTEGER "ns" "Wall time inside outermost traced calls.";
        in_calls_runqueue_ns INTEGER "ns" "Of that, runnable without a CPU.";
        in_calls_blocked_ns INTEGER "ns" "Of that, blocked.";
        tracer_ns INTEGER "ns" "What tracing took from the thread, estimated.";
        throttled_ns INTEGER "ns" "The part of `runqueue_ns` in which the CPU quota of its cgroup was used up.";
        reclaim_ns INTEGER "ns" "Freeing memory for itself or its cgroup, running and waiting: it overlaps with the other times, as do the next two.";
        compaction_ns INTEGER "ns" "Moving memory together for large pages, running and waiting.";
        ioctl_call_ns INTEGER "ns" "Inside ioctls, running and waiting.";
        major_faults INTEGER "" "Page faults that had to wait for a device.";
        session_id INTEGER "" "The run of the tracer.";
        running_ns INTEGER "ns" "On a CPU.";
    }
    view sched_events "Stretches of time that watched threads were off the CPU: blocked, then runnable until they ran again; either part may be missing. Short stretches share a row: the `all_` columns say what a row stands for, and their sums are exact." {
        id INTEGER "ns since epoch" "Names the stretch: its start, made unique by adding a few nanoseconds where two stretches started at once.";
        timestamp_ns INTEGER "ns since epoch" "When the thread left the CPU. Equal to `id`.";
        duration_ns INTEGER "ns" "Until it was on a CPU again: `blocked_ns + runqueue_ns`.";
        blocked_ns INTEGER "ns" "Not runnable.";
        runqueue_ns INTEGER "ns" "Runnable, but another thread had the CPU or the quota was used up.";
        is_throttled INTEGER "" "1 when the run-queue part was a stop by the CPU quota of its cgroup.";
        pid INTEGER "" "Process.";
        tid INTEGER "" "Thread.";
        comm TEXT "" "The thread's name.";
        blocked_on TEXT "" "What it waited for: `futex`, `io`, `fault`, `sleep`, `poll`, `stream`, `ioctl`, `other`; empty when it was preempted.";
        op TEXT "" "The innermost traced call it was in.";
        target_kind TEXT "" "What kind of thing it waited on: `lock` (a mutex), `signal` (a condition variable, a semaphore, a queue), `gil` (Python's interpreter lock), `pipe`, `unix`, `tcp`, `socket` (any other one), `eventfd`, `file`, `device` or `other`; empty where that is not known.";
        target TEXT "" "Which one: an address, a peer, a device number.";
        woken_by_pid INTEGER "" "Process that made it runnable; empty when an interrupt did, or when it was preempted.";
        woken_by_tid INTEGER "" "Thread that did.";
        woken_by_comm TEXT "" "Name of that thread.";
        taken_by_pid INTEGER "" "Process that ran longest on its CPU while it was runnable.";
        taken_by_tid INTEGER "" "Thread that did.";
        taken_by_comm TEXT "" "Name of that thread.";
        taken_by_ns INTEGER "ns" "How long it ran there meanwhile.";
        also_taken_by_pid INTEGER "" "Process that ran there second longest.";
        also_taken_by_tid INTEGER "" "Thread that did.";
        also_taken_by_comm TEXT "" "Name of that thread.";
        also_taken_by_ns INTEGER "ns" "How long it ran there meanwhile.";
        all_count INTEGER "stretches" "Stretches the row stands for: this one and shorter ones of the thread since its last row.";
        all_blocked_ns INTEGER "ns" "Their time blocked for the same reason.";
        all_runqueue_ns INTEGER "ns" "Their time runnable without a CPU.";
        session_id INTEGER "" "The run of the tracer.";
        stack_id INTEGER "" "Where in the program it waited, when its stack was taken: `stacks.id`, with its frames in `stack_lines`.";
        waker_stack_id INTEGER "" "What whoever made it runnable was doing.";
    }
    view kernel_events "Work the kernel did in a watched thread's own time, with the waits inside of it. Short spans share a row: the `all_` columns say what a row stands for." {
        id INTEGER "ns since epoch" "Names the span: its start, made unique by adding a few nanoseconds.";
        timestamp_ns INTEGER "ns since epoch" "When it began. Equal to `id`.";
        duration_ns INTEGER "ns" "From begin to end.";
        pid INTEGER "" "Process.";
        tid INTEGER "" "Thread.";
        comm TEXT "" "The thread's name.";
        kind TEXT "" "`reclaim` (freeing memory because there is none left, or none under the cgroup's limit), `compaction` (moving memory together for a large page) or `ioctl` (usually the GPU's kernel driver).";
        op TEXT "" "The innermost traced call the thread was in.";
        target_kind TEXT "" "What kind of file an ioctl was made on, as in `sched_events`.";
        target TEXT "" "Which one.";
        code INTEGER "" "Request number of an ioctl.";
        all_count INTEGER "spans" "Spans of this kind the row stands for: this one and those of the thread since its last row.";
        all_ns INTEGER "ns" "Their time.";
        session_id INTEGER "" "The run of the tracer.";
    }
    view io_events "One row per request to a block device whose completion woke a watched thread." {
        id INTEGER "ns since epoch" "Names the request: its start, made unique by adding a few nanoseconds.";
        timestamp_ns INTEGER "ns since epoch" "When it was handed to the device. Equal to `id`.";
        duration_ns INTEGER "ns" "Until the device was done.";
        device TEXT "" "The device's name or number: `nvme0n1`, `254:0`.";
        bytes INTEGER "bytes" "Size.";
        direction TEXT "" "`read` or `write`.";
        pid INTEGER "" "Process that waited for it.";
        tid INTEGER "" "Thread that waited.";
        comm TEXT "" "Name of that thread.";
        issuer_pid INTEGER "" "Process that handed it to the device, where known; often a kernel thread.";
        issuer_tid INTEGER "" "Thread that did.";
        issuer_comm TEXT "" "Name of that thread.";
        session_id INTEGER "" "The run of the tracer.";
    }
    view io_stats "What each process asked of each block device, summed per second. Only times in which a watched thread waits for I/O are covered." {
        bucket_ns INTEGER "ns since epoch" "Start of the second.";
        pid INTEGER "" "Process.";
        comm TEXT "" "The process's name.";
        device TEXT "" "The device's name or number.";
        requests INTEGER "requests" "Requests that finished.";
        bytes INTEGER "bytes" "Sum of their sizes.";
        busy_ns INTEGER "ns" "Sum of the times they were at the device.";
        session_id INTEGER "" "The run of the tracer.";
    }
    view call_sites "Which lines make the calls: one row per function, thread and place in the program, over the calls whose stacks were taken. The place is the innermost Python frame outside of the standard library and of installed packages; where there is none, the innermost Python frame; else the innermost native frame outside of the C library and of the GPU's own libraries, or the innermost of all. `SELECT * FROM call_sites ORDER BY total_ns DESC LIMIT 20` is a good start. `call_stats` has all calls." {
        op TEXT "" "The function that was called.";
        pid INTEGER "" "Process.";
        tid INTEGER "" "Thread.";
        comm TEXT "" "The thread's name.";
        kind TEXT "" "`python`, `native`, `jit` or `kernel`, as in `stack_lines`; empty, as is all about the place, where the stack has no frames.";
        function TEXT "" "The function; an empty text where it has no name.";
        file TEXT "" "The source file.";
        line INTEGER "" "The line.";
        module TEXT "" "The file that holds the code.";
        address INTEGER "" "The address in it, of code without a name.";
        calls INTEGER "calls" "Calls made there.";
        total_ns INTEGER "ns" "Sum of their durations.";
        runqueue_ns INTEGER "ns" "Of that, runnable while another thread had the CPU.";
        blocked_ns INTEGER "ns" "Of that, blocked.";
        max_ns INTEGER "ns" "The longest.";
        max_stack_id INTEGER "" "Stack of the longest: `SELECT * FROM stack_lines WHERE stack_id = ...`.";
        session_id INTEGER "" "The run of the tracer.";
    }
    view wait_sites "Which lines wait: one row per reason, thread and place in the program, over the stretches off the CPU whose stacks were taken. The place is chosen as in `call_sites`. `thread_times` has all waits." {
        blocked_on TEXT "" "What was waited for, as in `sched_events`; empty for threads that were preempted.";
        pid INTEGER "" "Process.";
        tid INTEGER "" "Thread that waited.";
        comm TEXT "" "The thread's name.";
        kind TEXT "" "`python`, `native`, `jit` or `kernel`, as in `stack_lines`; empty, as is all about the place, where the stack has no frames.";
        function TEXT "" "The function; an empty text where it has no name.";
        file TEXT "" "The source file.";
        line INTEGER "" "The line.";
        module TEXT "" "The file that holds the code.";
        address INTEGER "" "The address in it, of code without a name.";
        waits INTEGER "stretches" "Waits there.";
        total_ns INTEGER "ns" "Sum of their durations, off the CPU.";
        blocked_ns INTEGER "ns" "Of that, blocked.";
        runqueue_ns INTEGER "ns" "Of that, runnable without a CPU.";
        max_ns INTEGER "ns" "The longest.";
        max_stack_id INTEGER "" "Stack of the longest.";
        session_id INTEGER "" "The run of the tracer.";
    }
    view waker_sites "Which lines end the waits of others: one row per reason, thread that waited, thread that ended it, and place in the program of the latter. The place is chosen as in `call_sites`." {
        blocked_on TEXT "" "What was waited for, as in `sched_events`.";
        pid INTEGER "" "Process that waited.";
        tid INTEGER "" "Thread that waited.";
        comm TEXT "" "The thread's name.";
        woken_by_pid INTEGER "" "Process that ended the waits.";
        woken_by_tid INTEGER "" "Thread that did.";
        woken_by_comm TEXT "" "Name of that thread.";
        kind TEXT "" "`python`, `native`, `jit` or `kernel`, as in `stack_lines`; empty, as is all about the place, where the stack has no frames.";
        function TEXT "" "The function; an empty text where it has no name.";
        file TEXT "" "The source file.";
        line INTEGER "" "The line.";
        module TEXT "" "The file that holds the code.";
        address INTEGER "" "The address in it, of code without a name.";
        waits INTEGER "stretches" "Waits that were ended there.";
        total_ns INTEGER "ns" "Sum of their blocked time.";
        max_ns INTEGER "ns" "The longest.";
        max_stack_id INTEGER "" "Stack of who ended the longest.";
        session_id INTEGER "" "The run of the tracer.";
    }
    view stack_lines "The frames of each stack, one row per frame, from the innermost outwards." {
        stack_id INTEGER "" "`stacks.id`.";
        position INTEGER "" "0 for the innermost frame.";
        kind TEXT "" "What it runs: `python`, `native` (code of a file), `jit` (code that belongs to no file) or `kernel`.";
        function TEXT "" "Demangled name, or Python's qualified name; an empty text where it is not known.";
        file TEXT "" "The source file.";
        line INTEGER "" "The line that was being executed.";
        module TEXT "" "Path of the file that holds the code, as the process sees it.";
        address INTEGER "" "Address in the module, in memory where there is none, or Python's bytecode offset; 64 bits shown as a signed number.";
        is_inlined INTEGER "" "1 when the compiler put the function's code into that of the next frame.";
    }
    view run_sites "Which lines threads were at when they were seen running, some 50 times a second: what they compute. The same lines count together." {
        pid INTEGER "" "Process.";
        tid INTEGER "" "Thread.";
        comm TEXT "" "The thread's name.";
        kind TEXT "" "As in `frames`.";
        function TEXT "" "The function; empty when not known.";
        file TEXT "" "The source file, where known.";
        line INTEGER "" "The line that was executing, where known.";
        module TEXT "" "Path of the file that holds the code.";
        address INTEGER "" "Address in the module when the function is not known.";
        samples INTEGER "" "How often the thread was seen there.";
        max_samples INTEGER "" "How often in one second with the same stack, at most.";
        max_stack_id INTEGER "" "That stack.";
        session_id INTEGER "" "The run of the tracer.";
    }
    view stack_stats "How the walks over stacks ended, per second: how far stacks can be relied on. Exact, also for stacks that were not kept." {
        bucket_ns INTEGER "ns since epoch" "Start of the second.";
        moment TEXT "" "When the stack was taken: `call` (at the return of a slow call), `wait` (when a thread left the CPU to wait) or `waker` (when a thread ended another one's wait) or `sample` (now and then, while it ran).";
        end TEXT "" "How the walk over native frames ended, as in `stacks`.";
        python_end TEXT "" "How the walk over Python's frames ended, as in `stacks`.";
        count INTEGER "walks" "Walks that ended so.";
        walking_ns INTEGER "ns" "How long they took, together.";
        session_id INTEGER "" "The run of the tracer.";
    }
    view rungs "One row each time the tracer begins to watch a function of a process more or less closely, to keep to its budget. It holds until the next one. Under a size cap the oldest rows go first; `call_stats.fraction` says the same per second." {
        at_ns INTEGER "ns since epoch" "When.";
        pid INTEGER "" "Process.";
        comm TEXT "" "The process's name.";
        op TEXT "" "The function.";
        layer TEXT "" "`driver` or `runtime`.";
        rung TEXT "" "`everything` (every call is kept), `slow-only` (every call is counted, slow ones are kept), `bursts` (counted and kept in short windows only) or `counters` (counted in short windows only, none is kept).";
        fraction REAL "" "Share of the time the function is probed from then on; 1 when it always is.";
        reason TEXT "" "Why.";
        session_id INTEGER "" "The run of the tracer.";
    }
    table nccl_events "One row per collective operation." {
        timestamp_ns INTEGER "ns since epoch" "Start.";
        duration_ns INTEGER "ns" "Duration.";
        pid INTEGER "" "Process.";
        tid INTEGER "" "Thread.";
        comm TEXT "" "The thread's name.";
        op TEXT "" "`ALL_REDUCE`, `BROADCAST`...";
        rank INTEGER "" "Rank within the communicator.";
        nranks INTEGER "" "Size of the communicator.";
        comm_id_hash INTEGER "" "Names the communicator, equal on all ranks; 64 bits shown as a signed number.";
        bytes INTEGER "bytes" "Size of the operation.";
        ret_code INTEGER "" "What the function returned; 0 is success.";
    }
    table tcp_events "One row per TCP event." {
        timestamp_ns INTEGER "ns since epoch" "When it happened.";
        pid INTEGER "" "Process, where known.";
        event TEXT "" "The kernel's name for it: `tcp_retransmit_skb`...";
        saddr TEXT "" "Local address.";
        sport INTEGER "" "Local port.";
        daddr TEXT "" "Remote address.";
        dport INTEGER "" "Remote port.";
    }
    table sessions "One row per run of the tracer." {
        id INTEGER "" "Names the session.";
        started_ns INTEGER "ns since epoch" "Start.";
        version TEXT "" "Version of gpuwhy.";
        host TEXT "" "Host name.";
        boot_id TEXT "" "The kernel's boot id.";
        kernel TEXT "" "Kernel release.";
        cpus INTEGER "" "Online CPUs.";
        gpus TEXT "" "JSON array, one string per GPU.";
        driver TEXT "" "GPU driver version.";
        command TEXT "" "Command line of the tracer.";
        attach_path TEXT "" "How probes are attached: `session`, `multi` or `single`.";
        probe_cost_ns INTEGER "ns" "Cost of a probe measured on this machine.";
        last_commit_ns INTEGER "ns since epoch" "Last time something was written. What happened later is not in the file.";
        stored INTEGER "calls" "Rows of this session in `calls`.";
        ended_ns INTEGER "ns since epoch" "End; empty while the session runs, and for ever when the tracer was killed.";
        seen INTEGER "calls" "Finished calls the kernel counted.";
        agent_cpu_ns INTEGER "ns" "CPU time the tracer used.";
        end_reason TEXT "" "Why it ended.";
        budget REAL "" "Share of the workload's time that tracing may take: 0.01 is 1 %. Empty for no budget.";
        is_virtual_machine INTEGER "" "1 when the host is a virtual machine; empty where that was not asked.";
    }
    table calibrations "What things cost on this machine, measured when a session starts." {
        session_id INTEGER "" "Session.";
        what TEXT "" "The thing: `counted call`...";
        ns REAL "ns" "What one takes.";
    }
    table agent_usage "What the tracer itself took, per second." {
        bucket_ns INTEGER "ns since epoch" "Start of the second.";
        session_id INTEGER "" "Session.";
        wall_ns INTEGER "ns" "Time covered.";
        cpu_ns INTEGER "ns" "CPU time of the tracer's own process.";
        hooks_ns INTEGER "ns" "Run time of its scheduler and process hooks in the kernel, on all CPUs.";
        call_program_ns INTEGER "ns" "How long a program at the entry or return of a call runs in the traced programs, as last measured; `calibrations` has what it takes in a test loop. What tracing costs is estimated in proportion.";
    }
    table losses "What was not kept, by session and reason." {
        session_id INTEGER "" "Session.";
        reason TEXT "" "`ring_full`, `expired`, `not_written`...";
        count INTEGER "" "How often.";
    }
    table warnings "What the tracer had to say." {
        session_id INTEGER "" "Session.";
        at_ns INTEGER "ns since epoch" "When.";
        text TEXT "" "The warning.";
        kind TEXT "" "What it is about: `attached` (what is traced), `not-attached`, `suspended`, `clock`, `stacks`, `other`. All but the first tell of something that was not seen.";
    }
    table explanations "What was found when a session ended, about the whole file as it was then." {
        session_id INTEGER "" "Session.";
        at_ns INTEGER "ns since epoch" "When it was found.";
        version TEXT "" "The gpuwhy that found it.";
        explanation TEXT "" "The object that `gpuwhy explain --json` prints.";
    }
    table clock_anchors "Pairs of kernel time and Unix time, taken now and then." {
        session_id INTEGER "" "Session.";
        monotonic_ns INTEGER "ns since boot" "The kernel's monotonic clock.";
        unix_offset_ns INTEGER "ns" "What to add to it for Unix time.";
    }
    table processes "One row per process image: a pid between two execs." {
        id INTEGER "" "Names the image.";
        session_id INTEGER "" "Session.";
        pid INTEGER "" "Process.";
        parent_pid INTEGER "" "Its parent.";
        started_ns INTEGER "ns since epoch" "Start of the process or of its last exec.";
        uid INTEGER "" "User.";
        comm TEXT "" "Name.";
        exe TEXT "" "Executable.";
        cmdline TEXT "" "Command line.";
        cgroup_id INTEGER "" "cgroup (v2), 64 bits shown as a signed number.";
        cgroup TEXT "" "cgroup path.";
        container_id TEXT "" "Container, where there is one.";
        cpu_quota REAL "CPUs" "CPUs the cgroup may use, where it has a quota: 0.5 is half of one.";
        memory_limit INTEGER "bytes" "Memory the cgroup may use, where it has a limit.";
    }
    table threads "One row per thread." {
        id INTEGER "" "Names the thread.";
        process_id INTEGER "" "`processes.id`.";
        tid INTEGER "" "Thread.";
        comm TEXT "" "Name, the last one it had.";
    }
    table process_life "Turns in the lives of processes." {
        session_id INTEGER "" "Session.";
        at_ns INTEGER "ns since epoch" "When.";
        kind TEXT "" "`fork`, `exec`, `exit` (the last thread is gone) or `oom_kill` (chosen to be killed because memory ran out).";
        pid INTEGER "" "Process.";
        child_pid INTEGER "" "The new process of a fork.";
        status INTEGER "" "Wait status of an exit, as `waitpid` reports it.";
        comm TEXT "" "Name.";
    }
    table modules "Files that calls were issued from." {
        id INTEGER "" "Names the file.";
        path TEXT "" "Its path.";
        is_runtime INTEGER "" "1 for a CUDA runtime library, whose calls carry the runtime's name.";
    }
    table ops "Traced functions." {
        id INTEGER "" "Names the function.";
        name TEXT "" "Its name.";
        layer TEXT "" "`driver` or `runtime`.";
        class TEXT "" "What it is for.";
        runtime_name TEXT "" "The runtime function that issues this driver function.";
    }
    table shapes "What many calls have in common. The table behind `cuda_events`." {
        id INTEGER "" "Names the combination.";
        session_id INTEGER "" "Session.";
        thread_id INTEGER "" "`threads.id`.";
        op_id INTEGER "" "`ops.id`.";
        device INTEGER "" "GPU index.";
        stream INTEGER "" "Stream handle, 64 bits shown as a signed number.";
        direction TEXT "" "Of a copy.";
        handle INTEGER "" "Kernel, graph or module handle, 64 bits shown as a signed number.";
        module_id INTEGER "" "`modules.id` of the caller.";
    }
    table waits "What held calls up. The table behind `cuda_events`." {
        id INTEGER "" "Names the combination.";
        reason TEXT "" "What the longest blocked stretch waited for.";
        woken_by_thread_id INTEGER "" "`threads.id` of who ended it.";
        preempted_by_thread_id INTEGER "" "`threads.id` of who took the CPU.";
    }
    table calls "One row per kept call. Read `cuda_events` instead; this table is laid out for size." {
        start_ns INTEGER "ns since epoch" "Start, made unique.";
        duration_ns INTEGER "ns" "From entry to return.";
        runqueue_ns INTEGER "ns" "Runnable while another thread had the CPU.";
        blocked_ns INTEGER "ns" "Off the CPU and not runnable.";
        shape_id INTEGER "" "`shapes.id`.";
        wait_id INTEGER "" "`waits.id`.";
        bytes INTEGER "bytes" "Size copied, set or allocated.";
        address INTEGER "" "Memory that was allocated or freed, 64 bits shown as a signed number.";
        ret_code INTEGER "" "What the function returned.";
        parent_delta_ns INTEGER "ns" "Start minus the start of the call this one was made inside of.";
        stack_id INTEGER "" "`stacks.id` of where the call was made.";
    }
    table call_counts "The table behind `call_stats`." {
        bucket_ns INTEGER "ns since epoch" "Start of the second.";
        thread_id INTEGER "" "`threads.id`.";
        op_id INTEGER "" "`ops.id`.";
        count INTEGER "calls" "Finished calls.";
        sum_ns INTEGER "ns" "Sum of their durations.";
        min_ns INTEGER "ns" "Shortest.";
        max_ns INTEGER "ns" "Longest.";
        runqueue_ns INTEGER "ns" "Sum of their time runnable without a CPU.";
        blocked_ns INTEGER "ns" "Sum of their time blocked.";
        bytes INTEGER "bytes" "Sum of their sizes.";
        errors INTEGER "calls" "Calls that returned an error.";
        fraction REAL "" "Share of the time the function was probed.";
        histogram TEXT "" "Durations as JSON, `[[lower bound in ns, calls], ...]`.";
        estimate INTEGER "calls" "Calls made, estimated.";
        variance REAL "calls^2" "Variance of the estimate.";
    }
    table thread_usage "The table behind `thread_times`." {
        bucket_ns INTEGER "ns since epoch" "Start of the second.";
        thread_id INTEGER "" "`threads.id`.";
        wall_ns INTEGER "ns" "Time covered.";
        runqueue_ns INTEGER "ns" "Runnable while another thread had the CPU.";
        futex_ns INTEGER "ns" "Blocked on a futex.";
        io_ns INTEGER "ns" "Blocked on block I/O.";
        fault_ns INTEGER "ns" "Blocked in a page fault.";
        sleep_ns INTEGER "ns" "Asleep on purpose.";
        poll_ns INTEGER "ns" "Blocked in poll, select or epoll.";
        stream_ns INTEGER "ns" "Blocked on a pipe, socket or other stream.";
        ioctl_ns INTEGER "ns" "Blocked in an ioctl.";
        other_ns INTEGER "ns" "Blocked on anything else.";
        in_calls_ns INTEGER "ns" "Wall time inside outermost traced calls.";
        in_calls_runqueue_ns INTEGER "ns" "Of that, runnable without a CPU.";
        in_calls_blocked_ns INTEGER "ns" "Of that, blocked.";
        tracer_ns INTEGER "ns" "What tracing took from the thread, estimated.";
        throttled_ns INTEGER "ns" "The part of `runqueue_ns` in which the CPU quota was used up.";
        reclaim_ns INTEGER "ns" "Freeing memory.";
        compaction_ns INTEGER "ns" "Moving memory together.";
        ioctl_call_ns INTEGER "ns" "Inside ioctls.";
        major_faults INTEGER "" "Page faults that had to wait for a device.";
    }
    table wait_targets "Things that threads wait on." {
        id INTEGER "" "Names the thing.";
        process_id INTEGER "" "`processes.id` of whose address or descriptor it is.";
        kind TEXT "" "What kind of thing it is, see `sched_events`.";
        name TEXT "" "Which one: an address, a peer, a device number.";
    }
    table stretches "The table behind `sched_events`." {
        start_ns INTEGER "ns since epoch" "Start, made unique.";
        thread_id INTEGER "" "`threads.id`.";
        blocked_ns INTEGER "ns" "Not runnable.";
        runqueue_ns INTEGER "ns" "Runnable without a CPU.";
        is_throttled INTEGER "" "1 when the CPU quota stopped it.";
        reason TEXT "" "What it waited for.";
        op_id INTEGER "" "`ops.id` of the call it was in.";
        target_id INTEGER "" "`wait_targets.id`.";
        woken_by_thread_id INTEGER "" "`threads.id` of who made it runnable.";
        taken_by_thread_id INTEGER "" "`threads.id` of who ran longest on its CPU.";
        taken_by_ns INTEGER "ns" "How long.";
        also_taken_by_thread_id INTEGER "" "`threads.id` of who ran there second longest.";
        also_taken_by_ns INTEGER "ns" "How long.";
        all_count INTEGER "stretches" "Stretches the row stands for.";
        all_blocked_ns INTEGER "ns" "Their time blocked for the same reason.";
        all_runqueue_ns INTEGER "ns" "Their time runnable without a CPU.";
        stack_id INTEGER "" "`stacks.id` of where it waited.";
        waker_stack_id INTEGER "" "`stacks.id` of what whoever made it runnable was doing.";
    }
    table kernel_work "The table behind `kernel_events`." {
        start_ns INTEGER "ns since epoch" "Start, made unique.";
        thread_id INTEGER "" "`threads.id`.";
        kind TEXT "" "`reclaim`, `compaction` or `ioctl`.";
        duration_ns INTEGER "ns" "From begin to end.";
        op_id INTEGER "" "`ops.id` of the call the thread was in.";
        target_id INTEGER "" "`wait_targets.id` of an ioctl's file.";
        code INTEGER "" "Request number of an ioctl.";
        all_count INTEGER "spans" "Spans the row stands for.";
        all_ns INTEGER "ns" "Their time.";
    }
    table io_requests "The table behind `io_events`." {
        start_ns INTEGER "ns since epoch" "Start, made unique.";
        duration_ns INTEGER "ns" "Until the device was done.";
        device TEXT "" "The device's name or number.";
        bytes INTEGER "bytes" "Size.";
        is_write INTEGER "" "1 for a write.";
        issuer_thread_id INTEGER "" "`threads.id` of who handed it over.";
        waiter_thread_id INTEGER "" "`threads.id` of who waited for it.";
    }
    table io_usage "The table behind `io_stats`." {
        bucket_ns INTEGER "ns since epoch" "Start of the second.";
        process_id INTEGER "" "`processes.id`.";
        device TEXT "" "The device's name or number.";
        requests INTEGER "requests" "Requests that finished.";
        bytes INTEGER "bytes" "Sum of their sizes.";
        busy_ns INTEGER "ns" "Sum of the times they were at the device.";
    }
    table stacks "Stacks that calls and waits cite. A stack is numbered before its frames are named: one that never was has no depth." {
        id INTEGER "" "Names the stack.";
        depth INTEGER "frames" "How many frames it has. Empty when they were not written: the tracer ended before, or the size cap had no room.";
        end TEXT "" "How the walk over native frames ended: `complete` (at the start of the thread or of the program), `too_deep`, `unreadable` (memory could not be read), `no_mapping` (an address outside of all known code), `no_rule` (code that does not say how to leave it), `no_progress` (the next frame would lie below the last), `no_frame_pointer` (no table, and frame pointers led nowhere), `no_process` (the process was not known yet), `frame_pointers` (at the start of the thread, by frame pointers that no table vouches for: functions that keep none may be missing) or `not_walked`.";
        python_end TEXT "" "How the walk over Python's frames ended: `not_python` (no Python that is known), `complete`, `too_deep`, `unreadable`, `no_thread` (the thread has no Python state) or `broken` (something in the chain is not what it has to be).";
        site_frame_id INTEGER "" "`frames.id` of the place that `call_sites`, `wait_sites` and `waker_sites` show.";
    }
    table frames "Frames, each stored once. Read `stack_lines` instead." {
        id INTEGER "" "Names the frame.";
        kind TEXT "" "What it runs, see `stack_lines`.";
        function TEXT "" "Name; an empty text where it is not known.";
        file TEXT "" "The source file.";
        line INTEGER "" "The line.";
        module TEXT "" "Path of the file that holds the code.";
        address INTEGER "" "Address in the module, in memory, or Python's bytecode offset; 64 bits shown as a signed number.";
        is_inlined INTEGER "" "1 when the compiler put the function's code into that of the next frame.";
    }
    table stack_frames "Which frames a stack has. The table behind `stack_lines`." {
        stack_id INTEGER "" "`stacks.id`.";
        position INTEGER "" "0 for the innermost frame.";
        frame_id INTEGER "" "`frames.id`.";
    }
    table kernels "Which kernel a process's launches with a handle launch; behind `cuda_events.kernel`." {
        process_id INTEGER "" "`processes.id`.";
        handle INTEGER "" "As in `cuda_events`.";
        name TEXT "" "The kernel.";
    }
    table stack_samples "The table behind `run_sites`." {
        bucket_ns INTEGER "ns since epoch" "Start of the second.";
        thread_id INTEGER "" "`threads.id`.";
        stack_id INTEGER "" "`stacks.id`.";
        count INTEGER "" "How often the thread was seen running with this stack.";
    }
    table stack_walks "The table behind `stack_stats`." {
        bucket_ns INTEGER "ns since epoch" "Start of the second.";
        session_id INTEGER "" "Session.";
        moment TEXT "" "When the stack was taken.";
        end TEXT "" "How the walk over native frames ended.";
        python_end TEXT "" "How the walk over Python's frames ended.";
        count INTEGER "walks" "Walks that ended so.";
        walking_ns INTEGER "ns" "How long they took, together.";
    }
    table rung_changes "The table behind `rungs`." {
        session_id INTEGER "" "Session.";
        at_ns INTEGER "ns since epoch" "When.";
        process_id INTEGER "" "`processes.id`.";
        op_id INTEGER "" "`ops.id`.";
        rung TEXT "" "`everything`, `slow-only`, `bursts` or `counters`.";
        fraction REAL "" "Share of the time the function is probed from then on.";
        reason TEXT "" "Why.";
    }
    table schema_tables "This list: every table and view." {
        name TEXT "" "Table or view.";
        kind TEXT "" "`table` or `view`.";
        description TEXT "" "What a row is.";
    }
    table schema_columns "This list: every column." {
        table_name TEXT "" "Table or view.";
        column_name TEXT "" "Column.";
        type TEXT "" "`INTEGER`, `REAL` or `TEXT`.";
        unit TEXT "" "Unit of the value, where it has one.";
        description TEXT "" "What it says.";
    }
}
