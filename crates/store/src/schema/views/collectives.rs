//! Views of operations of several GPUs.

use super::{View, declared_views};

pub(super) const VIEWS: &[View] = declared_views! {
    // Which rank a process is in a communicator made by a split follows from what all ranks of the one that was split said.
    split_ranks "One row per rank of a communicator that was made by splitting or shrinking another one." {
        comm_id_hash: nccl_operands.child_id_hash "Names the communicator.";
        process_id: threads.process_id;
        handle: shapes.handle "The communicator, as its process names it.";
        rank = "row_number() OVER (PARTITION BY nccl_operands.child_id_hash ORDER BY nccl_operands.key, nccl_operands.rank) - 1" INTEGER "" "Rank within the communicator.";
        nranks = "count(*) OVER (PARTITION BY nccl_operands.child_id_hash)" INTEGER "" "Size of the communicator.";
        parent_id_hash: nccl_operands.comm_id_hash "The communicator that it was made of.";
        is_complete = "count(*) OVER (PARTITION BY nccl_operands.comm_id_hash, nccl_operands.seq) = nccl_operands.nranks - coalesce(nccl_operands.excluded, 0)" INTEGER "" "1 when all ranks have been seen; otherwise `rank` and `nranks` are those of the ones that were.";
    } from "nccl_operands INDEXED BY nccl_splits
            CROSS JOIN calls ON calls.start_ns = nccl_operands.start_ns
            CROSS JOIN shapes ON shapes.id = calls.shape_id
            CROSS JOIN threads ON threads.id = shapes.thread_id
            WHERE nccl_operands.child_id_hash IS NOT NULL";

    nccl_events "One row per call that takes part in an operation of several GPUs, or that makes, splits or ends a communicator. Operations return before they are done: `duration_ns` is how long the call took." {
        id: calls.start_ns "Names the call, as in `cuda_events`.";
        timestamp_ns: calls.start_ns "When the call started. Equal to `id`.";
        duration_ns: calls.duration_ns;
        running_ns = "max(calls.duration_ns - calls.runqueue_ns - calls.blocked_ns, 0)" INTEGER "ns" "On a CPU.";
        runqueue_ns: calls.runqueue_ns;
        blocked_ns: calls.blocked_ns;
        pid: processes.pid;
        tid: threads.tid;
        comm: threads.comm;
        op: nccl_operands.op;
        function: ops.name "The function that was called.";
        comm_id_hash: nccl_operands.comm_id_hash;
        rank = "coalesce(nccl_operands.rank, split_ranks.rank)" INTEGER "" "Rank within the communicator; empty where it is not known.";
        nranks = "coalesce(nccl_operands.nranks, split_ranks.nranks)" INTEGER "" "Size of the communicator; empty where it is not known.";
        seq: nccl_operands.seq;
        bytes: calls.bytes "What this rank gives, or what it gets where it gives more than that.";
        datatype: nccl_operands.datatype;
        reduce_op: nccl_operands.reduce_op;
        peer: nccl_operands.peer;
        group_id: nccl_operands.group_id;
        color: nccl_operands.color;
        key: nccl_operands.key;
        child_id_hash: nccl_operands.child_id_hash;
        device: shapes.device;
        stream: shapes.stream;
        handle: shapes.handle "The communicator, as its process names it.";
        ret_code: calls.ret_code;
        cgroup_id: processes.cgroup_id;
        stack_id: calls.stack_id;
        process_comm: processes.comm;
        container_id: processes.container_id;
        session_id: shapes.session_id;
        excluded: nccl_operands.excluded;
        done_ns: collective_waits.done_ns "When the first call that waited for the operation returned; it may have been done before. Empty where nobody was seen to wait.";
        wait_ns: collective_waits.wait_ns "How long the rank waited in that call until the operation was done; 0 where that call waited for a later operation as well, which has it.";
        capture_began_ns: collective_captures.began_ns "Start of the call that began to capture a graph, for an operation that is recorded in it and asked for whenever it is launched: see `nccl_replays`. Empty for one that was asked for at once.";
    } from "nccl_operands
            CROSS JOIN calls ON calls.start_ns = nccl_operands.start_ns
            CROSS JOIN shapes ON shapes.id = calls.shape_id
            CROSS JOIN ops ON ops.id = shapes.op_id
            CROSS JOIN threads ON threads.id = shapes.thread_id
            CROSS JOIN processes ON processes.id = threads.process_id
            LEFT JOIN split_ranks ON split_ranks.comm_id_hash = nccl_operands.comm_id_hash AND split_ranks.is_complete
              AND split_ranks.process_id = threads.process_id AND split_ranks.handle = shapes.handle
            LEFT JOIN collective_waits ON collective_waits.start_ns = nccl_operands.start_ns
            LEFT JOIN collective_captures ON collective_captures.start_ns = nccl_operands.start_ns";

    nccl_replays "One row per launch of a graph that asks for operations of several GPUs, and communicator." {
        id: calls.start_ns "Names the launch, as in `cuda_events`.";
        timestamp_ns: calls.start_ns "When the launch started. Equal to `id`.";
        duration_ns: calls.duration_ns;
        pid: processes.pid;
        tid: threads.tid;
        comm: threads.comm;
        function: ops.name "The function that launched the graph.";
        comm_id_hash: collective_replays.comm_id_hash;
        rank = "coalesce(collective_replays.rank, split_ranks.rank)" INTEGER "" "Rank within the communicator; empty where it is not known.";
        nranks = "coalesce(collective_replays.nranks, split_ranks.nranks)" INTEGER "" "Size of the communicator; empty where it is not known.";
        seq: collective_replays.seq;
        replay: collective_replays.replay;
        operations: collective_replays.operations;
        bytes: collective_replays.bytes;
        device: shapes.device;
        stream: shapes.stream;
        graph: shapes.handle "The graph that was launched, as its process names it.";
        process_comm: processes.comm;
        session_id: shapes.session_id;
        capture_began_ns: collective_replays.began_ns;
        done_ns: collective_waits.done_ns "When the first call that waited for the graph returned; it may have been done before. Empty where nobody was seen to wait.";
        wait_ns: collective_waits.wait_ns "How long the rank waited in that call; 0 where that call waited for a later operation as well, which has it.";
    } from "collective_replays
            CROSS JOIN calls ON calls.start_ns = collective_replays.start_ns
            CROSS JOIN shapes ON shapes.id = calls.shape_id
            CROSS JOIN ops ON ops.id = shapes.op_id
            CROSS JOIN threads ON threads.id = shapes.thread_id
            CROSS JOIN processes ON processes.id = threads.process_id
            LEFT JOIN split_ranks ON split_ranks.comm_id_hash = collective_replays.comm_id_hash AND split_ranks.is_complete
              AND split_ranks.process_id = threads.process_id AND split_ranks.handle = collective_replays.handle
            LEFT JOIN collective_waits ON collective_waits.start_ns = collective_replays.start_ns";
};
