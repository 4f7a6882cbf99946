//! What kind of thing a traced function does, in words that hold for every vendor.

use crate::TimePart;

/// Declares an enum whose variants each have one spelling, used in the trace file, in JSON and in the terminal.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[derive(::serde::Deserialize, ::serde::Serialize, ::schemars::JsonSchema)]
        #[repr(u8)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $word)] $variant,)+ }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// The variant with this number, as the kernel side counts them.
            pub fn from_index(index: usize) -> Option<Self> {
                Self::ALL.get(index).copied()
            }
        }

        impl $crate::Scalar for $name {
            const TYPE: $crate::CellType = $crate::CellType::Text;

            fn to_cell(&self) -> $crate::Cell<'_> {
                $crate::Cell::Text(self.as_str().into())
            }

            /// `None` for words of other versions.
            fn from_cell(cell: $crate::Cell<'_>) -> Option<Self> {
                match cell {
                    $crate::Cell::Text(word) => Self::ALL.iter().copied().find(|one| one.as_str() == word),
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// Which of a vendor's libraries the function belongs to, from the lowest up: work that a layer is asked for is
    /// asked for again in the layers below it.
    Layer {
        /// The lowest library user space sees (libcuda).
        Driver = "driver",
        /// The convenience library on top of it (libcudart), whose calls end up as driver calls.
        Runtime = "runtime",
        /// The library for operations of several GPUs (libnccl, librccl), which launches kernels for them.
        Collective = "collective",
        /// The library for the fabric between hosts (libibverbs).
        Fabric = "fabric",
    }
}

impl Layer {
    /// The layer, of those that were traced, whose calls show each piece of work once.
    pub fn lowest(traced: impl IntoIterator<Item = Self>) -> Option<Self> {
        traced.into_iter().min()
    }
}

words! {
    /// What a call is for. What more can be said of a function is in its `Meaning`.
    CallClass {
        /// Starts a kernel, or a function of the host in its place.
        Launch = "launch",
        Copy = "copy",
        Memset = "memset",
        Alloc = "alloc",
        Free = "free",
        /// Waits for the device.
        Sync = "sync",
        /// Orders streams.
        Event = "event",
        /// Captures, makes ready and launches graphs.
        Graph = "graph",
        /// Loads, links and unloads code.
        Module = "module",
        /// Chooses the device.
        Context = "context",
        /// Takes part in an operation of several GPUs.
        Collective = "collective",
        /// Makes, splits and ends communicators: the groups of ranks that such operations work in.
        Communicator = "communicator",
        /// Waits for news of the fabric between hosts.
        Fabric = "fabric",
    }
}

impl CallClass {
    /// Which part of a thread's time its calls are, unless they turn out to wait for the device.
    pub fn time_part(self) -> TimePart {
        match self {
            Self::Launch | Self::Memset | Self::Event | Self::Collective => TimePart::Launching,
            Self::Copy => TimePart::Copying,
            Self::Alloc | Self::Free => TimePart::Memory,
            Self::Sync => TimePart::WaitingForGpu,
            Self::Graph | Self::Module | Self::Context | Self::Communicator | Self::Fabric => TimePart::OtherCalls,
        }
    }
}

words! {
    /// Where a copy goes. The first five follow the numbers of `cudaMemcpyKind`.
    Direction {
        HostToHost = "HtoH",
        HostToDevice = "HtoD",
        DeviceToHost = "DtoH",
        DeviceToDevice = "DtoD",
        /// The driver works it out from the addresses.
        Inferred = "default",
        PeerToPeer = "PtoP",
    }
}
