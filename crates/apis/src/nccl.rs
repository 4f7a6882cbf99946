//! Operations of several GPUs: libnccl, and librccl, which has the same functions.
//!
//! A call tells its communicator by a handle that means nothing outside its process. The id that all ranks have in common is
//! seen when a communicator is made, and remembered from then on.
//!
//! Left out is what tells and changes nothing (`ncclCommGetAsyncError`, which PyTorch asks a hundred times a second, among
//! them), and what one rank does with the memory of another without it (`ncclPutSignal`). A communicator that has grown
//! (`ncclCommGrow`) is one that was not seen being made.

use super::Communicator::{BeginsGroup, Collective, Creates, CreatesAll, Ends, EndsGroup, PointToPoint, Splits};
use super::Operand::{Arg, Arg32, Const, Hash, HashAt, Of, Out, SizeOf};
use super::{Api, Known, Library, Operand};
use gpuwhy_model::{Layer, OperandKind, OwnOperand, OwnOperands};

pub const LIBRARY: Library = Library {
    name: "nccl",
    layer: Layer::Collective,
    markers: &["ncclGetUniqueId", "ncclAllReduce", "ncclCommInitRank"],
    linked_in: None,
    apis: APIS,
    own: Some(&OWN),
};

const OWN: OwnOperands = OwnOperands {
    table: "nccl_operands",
    view: "nccl_events",
    description: "What calls into the library for collective operations have of their own.",
    operands: &[
        OwnOperand::new("op", OperandKind::Word(OPS), "What it is: `ALL_REDUCE`, `SEND`, `COMM_INIT`...").since(6),
        OwnOperand::new(
            "comm_id_hash",
            OperandKind::Bits,
            "Names the communicator, equal on all ranks; 64 bits shown as a signed number. Empty for one that was made before \
             the trace began.",
        )
        .since(6),
        OwnOperand::new("rank", OperandKind::Int, "Rank within the communicator, where it is known.").since(6),
        OwnOperand::new("nranks", OperandKind::Int, "Size of the communicator, where it is known.").since(6),
        OwnOperand::new(
            "seq",
            OperandKind::Count,
            "How many collective operations of the communicator came before: equal on all ranks for the same operation. \
             Sends and receives have none; for a split or a shrink, how many of both came before.",
        )
        .since(6),
        OwnOperand::new("datatype", OperandKind::Word(DATATYPES), "Type of an element.").since(6),
        OwnOperand::new("reduce_op", OperandKind::Word(REDUCE_OPS), "How elements are reduced.").since(6),
        OwnOperand::new("peer", OperandKind::Int, "The root, or the rank that is sent to or received from.").since(6),
        OwnOperand::new(
            "group_id",
            OperandKind::Count,
            "Operations of a thread with the same number were put together by `ncclGroupStart` and `ncclGroupEnd`.",
        )
        .since(6),
        OwnOperand::new("color", OperandKind::Int, "Of a split: ranks with the same color stay together.").since(6),
        OwnOperand::new("key", OperandKind::Int, "Of a split: the order of ranks.").since(6),
        OwnOperand::new("child_id_hash", OperandKind::Bits, "Of a split or a shrink: the communicator that it makes.").since(6),
        OwnOperand::new("excluded", OperandKind::Int, "Of a shrink: how many ranks are left out.").since(7),
    ],
};

const OPS: &[&str] = &[
    "ALL_REDUCE",
    "ALL_GATHER",
    "REDUCE_SCATTER",
    "BROADCAST",
    "REDUCE",
    "ALL_TO_ALL",
    "GATHER",
    "SCATTER",
    "SEND",
    "RECV",
    "COMM_INIT",
    "COMM_SPLIT",
    "COMM_END",
    "COMM_SHRINK",
];
/// Which of them a function is. One that is not in the list does not compile.
const fn op(word: &str) -> (&'static str, Operand) {
    let mut at = 0;
    while !is_same(OPS[at], word) {
        at += 1;
    }
    ("op", Const(at as u32))
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// `ncclDataType_t` in its order, and the sizes of the types as powers of two.
const DATATYPES: &[&str] = &[
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8e4m3",
    "float8e5m2",
];
const SIZES: u32 = sizes(&[0, 0, 2, 2, 3, 3, 1, 2, 3, 1, 0, 0]);
/// `ncclRedOp_t` in its order. Those that a program makes have no word.
const REDUCE_OPS: &[&str] = &["sum", "prod", "max", "min", "avg"];

const fn sizes(powers: &[u32]) -> u32 {
    let (mut packed, mut at) = (0, 0);
    while at < powers.len() {
        packed |= powers[at] << (2 * at);
        at += 1;
    }
    packed
}

const ID: (&str, Operand) = ("comm_id_hash", Of(Known::Id));
const RANK: (&str, Operand) = ("rank", Of(Known::Rank));
const RANKS: (&str, Operand) = ("nranks", Of(Known::Ranks));
const SEQUENCE: (&str, Operand) = ("seq", Of(Known::Sequence));
const CHILD: (&str, Operand) = ("child_id_hash", Of(Known::Child));
const GROUP: (&str, Operand) = ("group_id", Of(Known::Group));

const fn datatype(slot: u8) -> (&'static str, Operand) {
    ("datatype", Arg32(slot))
}

const fn reduce_op(slot: u8) -> (&'static str, Operand) {
    ("reduce_op", Arg32(slot))
}

const fn peer(slot: u8) -> (&'static str, Operand) {
    ("peer", Arg32(slot))
}

const APIS: &[Api] = apis! {
    // Operations of all ranks. Their counts are elements. Those with a configuration, since 2.32, take it behind all others.
    Collective "ncclAllReduce" ["ncclAllReduce" "pncclAllReduce" "ncclAllReduceConfig" "pncclAllReduceConfig"]
        { handle: Arg(5), stream: Arg(6), bytes: &[Arg(2), SizeOf(3, SIZES)], communicator: Collective,
          own: &[op("ALL_REDUCE"), ID, RANK, RANKS, SEQUENCE, datatype(3), reduce_op(4), GROUP] };
    Collective "ncclAllGather" ["ncclAllGather" "pncclAllGather" "ncclAllGatherConfig" "pncclAllGatherConfig"]
        { handle: Arg(4), stream: Arg(5), bytes: &[Arg(2), SizeOf(3, SIZES)], communicator: Collective,
          own: &[op("ALL_GATHER"), ID, RANK, RANKS, SEQUENCE, datatype(3), GROUP] };
    Collective "ncclReduceScatter" ["ncclReduceScatter" "pncclReduceScatter" "ncclReduceScatterConfig" "pncclReduceScatterConfig"]
        { handle: Arg(5), stream: Arg(6), bytes: &[Arg(2), SizeOf(3, SIZES)], communicator: Collective,
          own: &[op("REDUCE_SCATTER"), ID, RANK, RANKS, SEQUENCE, datatype(3), reduce_op(4), GROUP] };
    Collective "ncclBroadcast" ["ncclBroadcast" "pncclBroadcast" "ncclBroadcastConfig" "pncclBroadcastConfig"]
        { handle: Arg(5), stream: Arg(6), bytes: &[Arg(2), SizeOf(3, SIZES)], communicator: Collective,
          own: &[op("BROADCAST"), ID, RANK, RANKS, SEQUENCE, datatype(3), peer(4), GROUP] };
    Collective "ncclBcast" ["ncclBcast" "pncclBcast"]
        { handle: Arg(4), stream: Arg(5), bytes: &[Arg(1), SizeOf(2, SIZES)], communicator: Collective,
          own: &[op("BROADCAST"), ID, RANK, RANKS, SEQUENCE, datatype(2), peer(3), GROUP] };
    Collective "ncclReduce" ["ncclReduce" "pncclReduce" "ncclReduceConfig" "pncclReduceConfig"]
        { handle: Arg(6), stream: Arg(7), bytes: &[Arg(2), SizeOf(3, SIZES)], communicator: Collective,
          own: &[op("REDUCE"), ID, RANK, RANKS, SEQUENCE, datatype(3), reduce_op(4), peer(5), GROUP] };
    // RCCL has it too, under another name.
    Collective "ncclAlltoAll" ["ncclAlltoAll" "pncclAlltoAll" "ncclAlltoAllConfig" "pncclAlltoAllConfig"
        "ncclAllToAll" "pncclAllToAll"]
        { handle: Arg(4), stream: Arg(5), bytes: &[Arg(2), SizeOf(3, SIZES)], communicator: Collective,
          own: &[op("ALL_TO_ALL"), ID, RANK, RANKS, SEQUENCE, datatype(3), GROUP] };
    Collective "ncclGather" ["ncclGather" "pncclGather" "ncclGatherConfig" "pncclGatherConfig"]
        { handle: Arg(5), stream: Arg(6), bytes: &[Arg(2), SizeOf(3, SIZES)], communicator: Collective,
          own: &[op("GATHER"), ID, RANK, RANKS, SEQUENCE, datatype(3), peer(4), GROUP] };
    Collective "ncclScatter" ["ncclScatter" "pncclScatter" "ncclScatterConfig" "pncclScatterConfig"]
        { handle: Arg(5), stream: Arg(6), bytes: &[Arg(2), SizeOf(3, SIZES)], communicator: Collective,
          own: &[op("SCATTER"), ID, RANK, RANKS, SEQUENCE, datatype(3), peer(4), GROUP] };

    // Operations of two ranks.
    Collective "ncclSend" ["ncclSend" "pncclSend"]
        { handle: Arg(4), stream: Arg(5), bytes: &[Arg(1), SizeOf(2, SIZES)], communicator: PointToPoint,
          own: &[op("SEND"), ID, RANK, RANKS, datatype(2), peer(3), GROUP] };
    Collective "ncclRecv" ["ncclRecv" "pncclRecv"]
        { handle: Arg(4), stream: Arg(5), bytes: &[Arg(1), SizeOf(2, SIZES)], communicator: PointToPoint,
          own: &[op("RECV"), ID, RANK, RANKS, datatype(2), peer(3), GROUP] };
    Communicator "ncclGroupStart" ["ncclGroupStart" "pncclGroupStart"] { communicator: BeginsGroup };
    Communicator "ncclGroupEnd" ["ncclGroupEnd" "pncclGroupEnd"] { communicator: EndsGroup };

    // Communicators. The unique id is 128 bytes by value, so it lies on the stack and takes none of the registers.
    Communicator "ncclCommInitRank" ["ncclCommInitRank" "pncclCommInitRank"]
        { handle: Out(0), communicator: Creates,
          own: &[op("COMM_INIT"), ("comm_id_hash", Hash(6)), ("rank", Arg32(2)), ("nranks", Arg32(1))] };
    Communicator "ncclCommInitRankConfig" ["ncclCommInitRankConfig" "pncclCommInitRankConfig"]
        { handle: Out(0), communicator: Creates,
          own: &[op("COMM_INIT"), ("comm_id_hash", Hash(6)), ("rank", Arg32(2)), ("nranks", Arg32(1))] };
    // Of several unique ids the first names it.
    Communicator "ncclCommInitRankScalable" ["ncclCommInitRankScalable" "pncclCommInitRankScalable"]
        { handle: Out(0), communicator: Creates,
          own: &[op("COMM_INIT"), ("comm_id_hash", HashAt(4)), ("rank", Arg32(2)), ("nranks", Arg32(1))] };
    Communicator "ncclCommInitAll" ["ncclCommInitAll" "pncclCommInitAll"]
        { communicator: CreatesAll(Arg(0)), own: &[op("COMM_INIT"), ("nranks", Arg32(1))] };
    Communicator "ncclCommSplit" ["ncclCommSplit" "pncclCommSplit"]
        { handle: Out(3), communicator: Splits(Arg(0)),
          own: &[op("COMM_SPLIT"), ID, RANK, RANKS, CHILD, ("color", Arg32(1)), ("key", Arg32(2)), SEQUENCE] };
    // Ranks that are left out do not call it. The others keep their order.
    Communicator "ncclCommShrink" ["ncclCommShrink" "pncclCommShrink"]
        { handle: Out(3), communicator: Splits(Arg(0)),
          own: &[op("COMM_SHRINK"), ID, RANK, RANKS, CHILD, ("excluded", Arg32(2)), SEQUENCE] };
    Communicator "ncclCommFinalize" ["ncclCommFinalize" "pncclCommFinalize"] { handle: Arg(0) };
    Communicator "ncclCommDestroy" ["ncclCommDestroy" "pncclCommDestroy"]
        { handle: Arg(0), communicator: Ends, own: &[op("COMM_END"), ID, RANK, RANKS] };
    Communicator "ncclCommAbort" ["ncclCommAbort" "pncclCommAbort"]
        { handle: Arg(0), communicator: Ends, own: &[op("COMM_END"), ID, RANK, RANKS] };
};
