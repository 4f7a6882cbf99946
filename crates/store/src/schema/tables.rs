//! The tables. Records are declared where the model has them; what is laid out otherwise in the file is declared here.

use gpuwhy_model::{
    AgentUsage, Annotation, Calibration, CallStats, CollectiveCapture, CollectiveReplay, CollectiveWait, Column,
    FabricEvent, Frame, IoRequest, IoUsage, KernelWork, OwnOperands, Process, ProcessLife, RungChange, StackSample,
    StackWalks, Standstill, Stretch, TableFacts, TcpEvent, ThreadTimes, WaitTarget,
};

use super::older_ops;
use super::table::{Index, Table, cell_type};

/// All of them, with one for each library whose calls have something of their own.
pub(super) fn tables(own: &[&OwnOperands]) -> Vec<Table> {
    let mut tables = declared();
    tables.extend([
        Table::of::<Calibration>(),
        Table::of::<AgentUsage>(),
        Table::of::<Process>(),
        Table::of::<ProcessLife>(),
        Table::of::<CallStats>(),
        Table::of::<ThreadTimes>(),
        Table::of::<CollectiveCapture>(),
        Table::of::<CollectiveReplay>(),
        Table::of::<CollectiveWait>(),
        Table::of::<WaitTarget>(),
        Table::of::<Stretch>(),
        Table::of::<Standstill>(),
        Table::of::<KernelWork>(),
        Table::of::<IoRequest>(),
        Table::of::<IoUsage>(),
        Table::of::<Frame>(),
        Table::of::<StackSample>(),
        Table::of::<StackWalks>(),
        Table::of::<RungChange>(),
        Table::of::<TcpEvent>(),
        Table::of::<FabricEvent>(),
        Table::of::<Annotation>(),
    ]);
    tables.extend(own.iter().map(|own| Table::of_own(own)));
    tables
}

/// The tables in which a file describes itself.
pub fn describing_tables() -> impl Iterator<Item = Table> {
    declared().into_iter().filter(|table| matches!(table.facts.name, "schema_tables" | "schema_columns"))
}

/// What a note of an older file is about: only its first word told.
pub(crate) const NOTE_KIND: &str =
    "CASE WHEN text GLOB 'attached *' OR text GLOB 'tracing *' THEN 'attached' ELSE 'other' END";

pub(super) const INDEXES: &[Index] = &[
    Index { name: "process_life_time", on: "process_life (at_ns)", since: 1 },
    Index { name: "tcp_events_time", on: "tcp_events (timestamp_ns)", since: 1 },
    Index { name: "rung_changes_time", on: "rung_changes (at_ns)", since: 2 },
    // Allocations and frees in the order of time, without a look at all calls.
    Index { name: "calls_memory", on: "calls (start_ns) WHERE address IS NOT NULL", since: 3 },
    // Calls whose stacks were taken.
    Index { name: "calls_stacks", on: "calls (start_ns) WHERE stack_id IS NOT NULL", since: 4 },
    // Splits of communicators, without a look at all operations.
    Index { name: "nccl_splits", on: "nccl_operands (start_ns) WHERE child_id_hash IS NOT NULL", since: 6 },
];

/// Tables that were taken out, with the version that did so. Nothing was ever written to them.
pub(super) const TAKEN_OUT: &[(&str, u32)] = &[("nccl_events", 5)];

/// Declares tables: a name, the columns that tell rows apart, since which version of the file, what a row is, and the columns.
/// In brackets stands what [`Column`] has functions for. A column that is added later is the last one, and says since when.
macro_rules! declared {
    ($($name:ident ($($key:ident),*) since $since:literal $description:literal {
        $($column:ident $kind:ident $([$($option:ident($($value:expr)?)),+])? $meaning:literal;)+
    })+) => {
        fn declared() -> Vec<Table> {
            vec![$(Table {
                facts: TableFacts {
                    name: stringify!($name),
                    key: &[$(stringify!($key)),*],
                    since: $since,
                    description: $description,
                },
                columns: vec![$(
                    Column::new(stringify!($column), cell_type!($kind), $meaning)$($(.$option($($value)?))+)?
                ),+],
                view: None,
            }),+]
        }
    };
}

declared! {
    sessions (id) since 1 "One row per run of the tracer." {
        id INTEGER "Names the session.";
        started_ns INTEGER [unit("ns since epoch")] "Start.";
        version TEXT "Version of gpuwhy.";
        host TEXT "Host name.";
        boot_id TEXT "The kernel's boot id.";
        kernel TEXT "Kernel release.";
        cpus INTEGER "Online CPUs.";
        gpus TEXT "JSON array, one string per GPU.";
        driver TEXT [optional()] "GPU driver version.";
        command TEXT "Command line of the tracer.";
        attach_path TEXT "How probes are attached: `session`, `multi` or `single`.";
        probe_cost_ns INTEGER [optional(), unit("ns")] "Cost of a probe measured on this machine.";
        last_commit_ns INTEGER [unit("ns since epoch")] "Last time something was written. What happened later is not in the file.";
        stored INTEGER [unit("calls")] "Rows of this session in `calls`.";
        ended_ns INTEGER [optional(), unit("ns since epoch")] "End; empty while the session runs, and for ever when the tracer was killed.";
        seen INTEGER [optional(), unit("calls")] "Finished calls the kernel counted.";
        agent_cpu_ns INTEGER [optional(), unit("ns")] "CPU time the tracer used.";
        end_reason TEXT [optional()] "Why it ended.";
        budget REAL [optional(), since(2)] "Share of the workload's time that tracing may take: 0.01 is 1 %. Empty for no budget.";
        is_virtual_machine INTEGER [optional(), since(2)] "1 when the host is a virtual machine; empty where that was not asked.";
        clock_shift_ns INTEGER [optional(), unit("ns"), since(7)] "What was added to all times of the session when traces were merged, because its host's clock differs from that of the first one.";
        clock_error_ns INTEGER [optional(), unit("ns"), since(7)] "By how much times of the session may still be off in a merged trace. Empty in one that was not merged, and where nothing told how clocks differ.";
    }

    losses (session_id, reason) since 1 "What was not kept, by session and reason." {
        session_id INTEGER "The run of the tracer: `sessions.id`.";
        reason TEXT "`ring_full`, `expired`, `not_written`...";
        count INTEGER "How often.";
    }

    warnings () since 1 "What the tracer had to say." {
        session_id INTEGER "The run of the tracer: `sessions.id`.";
        at_ns INTEGER [unit("ns since epoch")] "When.";
        text TEXT "The warning.";
        kind TEXT [since(5), earlier(NOTE_KIND)] "What it is about: `attached` (what is traced), `not-attached`, `suspended`, `clock`, `stacks`, `other`. All but the first tell of something that was not seen.";
    }

    clock_anchors () since 1 "Pairs of kernel time and Unix time, taken now and then." {
        session_id INTEGER "The run of the tracer: `sessions.id`.";
        monotonic_ns INTEGER [unit("ns since boot")] "The kernel's monotonic clock.";
        unix_offset_ns INTEGER [unit("ns")] "What to add to it for Unix time.";
    }

    threads (id) since 1 "One row per thread." {
        id INTEGER "Names the thread.";
        process_id INTEGER "`processes.id`.";
        tid INTEGER "Thread.";
        comm TEXT "The thread's name, the last one it had.";
    }

    modules (id) since 1 "Files that calls were issued from." {
        id INTEGER "Names the file.";
        path TEXT "Its path.";
        is_runtime INTEGER "1 for a CUDA runtime library, whose calls carry the runtime's name.";
    }

    ops (id) since 1 "Traced functions." {
        id INTEGER "Names the function.";
        name TEXT "The function.";
        layer TEXT "`driver`, `runtime`, `collective` or `fabric`.";
        class TEXT "What the function is for: `launch`, `copy`, `memset`, `alloc`, `free`, `sync`, `event`, `graph`, `module`, `context`, `collective`, `communicator`, `fabric`.";
        runtime_name TEXT [optional()] "The runtime function that issues this driver function.";
        is_launch INTEGER [since(5), earlier(older_ops::IS_LAUNCH)] "1 if it starts work on the device: a kernel, or a graph of them.";
        is_async INTEGER [since(5), earlier(older_ops::IS_ASYNC)] "1 if it returns before the work it asks for is done.";
        is_wait INTEGER [since(5), earlier(older_ops::IS_WAIT)] "1 if it is there to wait until the device has done its work.";
        is_followed INTEGER [since(5), earlier(older_ops::IS_FOLLOWED)] "1 if the memory that it allocates or frees is followed by address.";
        memory TEXT [optional(), since(5), earlier(older_ops::MEMORY)] "Which memory it allocates or moves: `device`, `host` or `managed`. Empty where that depends, and for functions that do neither.";
        graph_step TEXT [optional(), since(5), earlier(older_ops::GRAPH_STEP)] "A step on the way to a graph that can be launched: `capture` begins one, `captured` ends that, `instantiate` makes it ready.";
    }

    shapes (id) since 1 "What many calls have in common. The table behind `cuda_events`." {
        id INTEGER "Names the combination.";
        session_id INTEGER "The run of the tracer: `sessions.id`.";
        thread_id INTEGER "`threads.id`.";
        op_id INTEGER "`ops.id`.";
        device INTEGER [optional()] "GPU index as the program counts them.";
        stream INTEGER [optional()] "Stream handle, 64 bits shown as a signed number.";
        direction TEXT [optional()] "Of a copy: `HtoH`, `HtoD`, `DtoH`, `DtoD`, `PtoP`, or `default` where the driver works it out.";
        handle INTEGER [optional()] "Kernel, graph or module handle, 64 bits shown as a signed number.";
        module_id INTEGER [optional()] "`modules.id` of the caller.";
    }

    waits (id) since 1 "What held calls up. The table behind `cuda_events`." {
        id INTEGER "Names the combination.";
        reason TEXT [optional()] "What the longest blocked stretch waited for: `futex`, `io`, `fault`, `sleep`, `poll`, `stream`, `ioctl`, `other`.";
        woken_by_thread_id INTEGER [optional()] "`threads.id` of who ended it.";
        preempted_by_thread_id INTEGER [optional()] "`threads.id` of who took the CPU.";
    }

    calls (start_ns) since 1 "One row per kept call. Read `cuda_events` instead; this table is laid out for size." {
        start_ns INTEGER [unit("ns since epoch")] "Start, made unique.";
        duration_ns INTEGER [unit("ns")] "From entry to return.";
        runqueue_ns INTEGER [unit("ns")] "Runnable while another thread had the CPU.";
        blocked_ns INTEGER [unit("ns")] "Off the CPU and not runnable.";
        shape_id INTEGER "`shapes.id`.";
        wait_id INTEGER [optional()] "`waits.id`.";
        bytes INTEGER [optional(), unit("bytes")] "Size copied, set or allocated.";
        address INTEGER [optional()] "Memory that was allocated or freed, or the graph that was made ready, 64 bits shown as a signed number.";
        ret_code INTEGER "What the function returned; 0 is success.";
        parent_delta_ns INTEGER [optional(), unit("ns")] "Start minus the start of the call this one was made inside of.";
        stack_id INTEGER [optional()] "Where in the program the call was made, when its stack was taken: `stacks.id`, with its frames in `stack_lines`.";
    }

    stacks (id) since 4 "Stacks that calls and waits cite. A stack is numbered before its frames are named: one that never was has no depth." {
        id INTEGER "Names the stack.";
        depth INTEGER [optional(), unit("frames")] "How many frames it has. Empty when they were not written: the tracer ended before, or the size cap had no room.";
        end TEXT [optional()] "How the walk over native frames ended: `complete` (at the start of the thread or of the program), `too_deep`, `unreadable` (memory could not be read), `no_mapping` (an address outside of all known code), `no_rule` (code that does not say how to leave it), `no_progress` (the next frame would lie below the last), `no_frame_pointer` (no table, and frame pointers led nowhere), `no_process` (the process was not known yet), `frame_pointers` (at the start of the thread, by frame pointers that no table vouches for: functions that keep none may be missing) or `not_walked`.";
        python_end TEXT [optional()] "How the walk over Python's frames ended: `not_python` (no Python that is known), `complete`, `too_deep`, `unreadable`, `no_thread` (the thread has no Python state) or `broken` (something in the chain is not what it has to be).";
        site_frame_id INTEGER [optional()] "`frames.id` of the place that `call_sites`, `wait_sites` and `waker_sites` show.";
    }

    stack_frames (stack_id, position) since 4 "Which frames a stack has. The table behind `stack_lines`." {
        stack_id INTEGER "`stacks.id`.";
        position INTEGER "0 for the innermost frame.";
        frame_id INTEGER "`frames.id`.";
    }

    kernels (process_id, handle) since 4 "Which kernel a process's launches with a handle launch; behind `cuda_events.kernel`." {
        process_id INTEGER "`processes.id`.";
        handle INTEGER "As in `cuda_events`.";
        name TEXT "The kernel.";
    }

    sample_series (id) since 5 "Things that are measured again and again. Read `sample_values` instead." {
        id INTEGER "Names the thing.";
        session_id INTEGER "The run of the tracer: `sessions.id`.";
        name TEXT "What was measured, in words with dots.";
        unit TEXT "Unit of the value; an empty text for a plain number.";
        device TEXT [optional()] "What it was measured on, where there is more than one.";
    }

    samples (at_ns, series_id) since 5 "The table behind `sample_values`." {
        at_ns INTEGER [unit("ns since epoch")] "When.";
        series_id INTEGER "`sample_series.id`.";
        value REAL "The value, in its `unit`.";
    }

    process_labels (process_id, key) since 5 "The table behind `labels`." {
        process_id INTEGER "`processes.id`.";
        key TEXT "What the value says: `container`, `pod`, `rank`...";
        value TEXT "The value.";
    }

    explanations (session_id) since 5 "What was found when a session ended, about the whole file as it was then." {
        session_id INTEGER "The run of the tracer: `sessions.id`.";
        at_ns INTEGER [unit("ns since epoch")] "When it was found.";
        version TEXT "The gpuwhy that found it.";
        explanation TEXT "The object that `gpuwhy explain --json` prints.";
    }

    schema_tables (name) since 1 "This list: every table and view." {
        name TEXT "Table or view.";
        kind TEXT "`table` or `view`.";
        description TEXT "What a row is.";
    }

    schema_columns (table_name, column_name) since 1 "This list: every column." {
        table_name TEXT "Table or view.";
        column_name TEXT "Column.";
        type TEXT "`INTEGER`, `REAL` or `TEXT`.";
        unit TEXT [optional()] "Unit of the value, where it has one.";
        description TEXT "What it says.";
    }
}
