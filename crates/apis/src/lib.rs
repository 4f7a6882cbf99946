//! What the traced functions mean: one table per library, one row per function.
//!
//! The kernel side knows no vendor. It times any function and evaluates the operands of its row; everything a row
//! says about CUDA is said here.

/// Declares the rows of a library's table: class, words for what is not usual for the class, name, exported symbols,
/// the runtime function that ends there, when it is probed if not always, and what is read of its arguments.
macro_rules! apis {
    ($($class:ident $($word:ident)* $name:literal [$($symbol:literal)+] $(<- $runtime:literal)? $($when:ident)?
       { $($what:ident: $from:expr),* };)+) => {
        &[$($crate::Api {
            name: $name,
            symbols: &[$($symbol),+],
            meaning: $crate::words::meaning(::gpuwhy_model::CallClass::$class, &[$($crate::words::Word::$word),*]),
            runtime_name: apis!(@option $($runtime)?),
            when: apis!(@when $($when)?),
            reads: $crate::Reads { $($what: $from,)* ..$crate::Reads::NONE },
        }),+]
    };
    (@option) => { ::core::option::Option::None };
    (@option $runtime:literal) => { ::core::option::Option::Some($runtime) };
    (@when) => { $crate::When::ItsLayerIs };
    (@when says_more) => { $crate::When::ItsLayerOrTheDriverIs };
    (@when learns) => { $crate::When::Learning };
}

mod cuda_driver;
mod cuda_runtime;
mod hip;
mod nccl;
mod rdma;
mod table;
mod words;

use gpuwhy_model::{Direction, Layer, Meaning, OwnOperands};

pub use table::{Row, own_operands, row, rows};

/// Every library that can be traced.
pub const LIBRARIES: &[Library] =
    &[cuda_driver::LIBRARY, cuda_runtime::LIBRARY, hip::LIBRARY, nccl::LIBRARY, rdma::LIBRARY];

/// A library, recognised by what it exports and not by its name.
#[derive(Debug)]
pub struct Library {
    pub name: &'static str,
    pub layer: Layer,
    /// A file that exports all of these is a copy of the library.
    pub markers: &'static [&'static str],
    /// A file that defines this function, exported or not, has the library linked in: what it asks the layers below for
    /// carries the library's own name, too.
    pub linked_in: Option<&'static str>,
    pub apis: &'static [Api],
    /// What its calls have that those of other libraries do not.
    pub own: Option<&'static OwnOperands>,
}

/// One traced function. Versions of a function with another signature are rows of their own with the same name.
#[derive(Debug)]
pub struct Api {
    /// What a user calls it: the name in the header, without version or per-thread-stream suffix.
    pub name: &'static str,
    /// The exported symbols with exactly this signature.
    pub symbols: &'static [&'static str],
    pub meaning: Meaning,
    /// For a driver function: the runtime function that ends up here.
    pub runtime_name: Option<&'static str>,
    pub when: When,
    pub reads: Reads,
}

impl Api {
    /// Whether something is known only if every call of it is seen: a thread's device, or the place of an operation in
    /// the order of its communicator.
    pub fn must_be_seen(&self) -> bool {
        self.reads.device != DeviceChange::None || self.reads.communicator != Communicator::None
    }
}

/// When a function is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// With its layer.
    ItsLayerIs,
    /// Also with the driver layer, which does not show the same.
    ItsLayerOrTheDriverIs,
    /// For a moment after attaching, to learn the device of threads that selected it before. Programs call it too
    /// often to probe it for long, and it is not counted.
    Learning,
}

/// What to read of a call's arguments. A row names only what its function has.
#[derive(Debug)]
pub struct Reads {
    /// The product of these, at most three, is the number of bytes the call moves, sets or allocates.
    pub bytes: &'static [Operand],
    pub stream: Operand,
    /// The memory that is allocated or freed, or the graph that is made ready.
    pub address: Operand,
    /// The kernel, graph, module, event or context handle.
    pub handle: Operand,
    pub direction: Way,
    /// How the call changes which GPU the thread works on.
    pub device: DeviceChange,
    /// What the call does with the communicator in `handle`.
    pub communicator: Communicator,
    /// What only its library has, at most eight besides constants, by the names of [`Library::own`].
    pub own: &'static [(&'static str, Operand)],
}

impl Reads {
    pub const NONE: Reads = Reads {
        bytes: &[],
        stream: Operand::None,
        address: Operand::None,
        handle: Operand::None,
        direction: Way::None,
        device: DeviceChange::None,
        communicator: Communicator::None,
        own: &[],
    };
}

/// Where a value is found. Slots count the integer eightbytes of the argument list from 0: six registers, then the
/// stack. A by-value struct of up to 16 bytes takes the slots of its eightbytes; a larger one lies on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    None,
    /// A factor that the function's name implies, like the two bytes of each `cuMemsetD16` element.
    Const(u32),
    /// A 64-bit argument.
    Arg(u8),
    /// A 32-bit argument.
    Arg32(u8),
    /// A 64-bit field of the struct an argument points to.
    Field(u8, u16),
    /// A 32-bit field of the struct an argument points to.
    Field32(u8, u16),
    /// The 64-bit value the function stores through a pointer argument, read when it returns.
    Out(u8),
    /// The 32-bit value the function stores through a pointer argument, read when it returns.
    Out32(u8),
    /// A 32-bit field of the struct that the function fills through a pointer argument, read when it returns.
    OutField32(u8, u16),
    /// How many bytes an element has whose type is this 32-bit argument: each type has two bits, the lowest type the lowest
    /// ones, with the power of two that its size is.
    SizeOf(u8, u32),
    /// A hash of the 128 bytes that lie at this slot: a struct that is passed by value.
    Hash(u8),
    /// The same of the 128 bytes that an argument points to.
    HashAt(u8),
    /// What is known of the communicator in `handle`.
    Of(Known),
}

/// What is remembered of a communicator, and of the group of operations that a thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Equal for all of its ranks.
    Id,
    Rank,
    Ranks,
    /// How many collective operations of it came before this one.
    Sequence,
    /// Which of the thread's groups the call is in; unknown outside of one.
    Group,
    /// The id of the communicator that the call makes out of another.
    Child,
}

/// What a call does with a communicator: the group of ranks that operations of several devices work in. Its `handle` names
/// it within its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Communicator {
    None,
    /// Makes one. The first of its own operands that are read are its id, this rank and how many ranks there are.
    Creates,
    /// Makes one whose ranks are all in this process, and stores their handles in this list. How many they are is the first
    /// of its own operands.
    CreatesAll(Operand),
    /// Makes one out of the one with this handle. The first of its own operands are the id, rank and number of ranks of that
    /// one, the id of the new one, and the color that its ranks have in common.
    Splits(Operand),
    /// An operation of all ranks.
    Collective,
    /// An operation of two of them.
    PointToPoint,
    Ends,
    /// Operations between these two are one.
    BeginsGroup,
    EndsGroup,
}

/// Which way a copy goes.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    None,
    Fixed(Direction),
    /// An argument that counts like `cudaMemcpyKind`.
    Arg(u8),
    /// A 32-bit field, counted like `cudaMemcpyKind`, of the struct an argument points to.
    Field(u8, u16),
}

/// What a call says about the device of the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChange {
    None,
    /// The thread now uses the device this operand numbers.
    SelectDevice(Operand),
    /// The thread now uses the device of the context in `handle`.
    SelectContext,
    /// The context in `handle` belongs to the device this operand numbers.
    BindContext(Operand),
    /// The context in `handle` belongs to this device, and the thread now uses it.
    BindAndSelect(Operand),
    /// As `SelectContext`, remembering the previous device.
    PushContext,
    /// Back to the device before the last push.
    PopContext,
}
