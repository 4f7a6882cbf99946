//! What kind of thing a traced function does, in words that hold for every vendor.

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

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// Which of a vendor's libraries the function belongs to.
    Layer {
        /// The lowest library user space sees (libcuda).
        Driver = "driver",
        /// The convenience library on top of it (libcudart), whose calls end up as driver calls.
        Runtime = "runtime",
    }
}

words! {
    /// What a call is for.
    CallClass {
        Launch = "launch",
        Copy = "copy",
        Memset = "memset",
        Alloc = "alloc",
        Free = "free",
        Sync = "sync",
        Event = "event",
        Graph = "graph",
        Module = "module",
        Context = "context",
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
