//! The maps that objects share, each list once. A list is a macro that hands its names to another one below: to declare
//! handles to them, to take these from the object that created the maps, and to have other objects use the same.

use libbpf_rs::MapHandle;

/// Those of `shared.bpf.h`.
macro_rules! shared_maps {
    ($what:ident $with:tt) => {
        $crate::families::maps::$what! { $with threads targets known_processes losses rings completions }
    };
}
pub(crate) use shared_maps;

/// Those of `stacks.bpf.h`, for objects that walk stacks.
macro_rules! stack_maps {
    ($what:ident $with:tt) => {
        $crate::families::maps::$what! {
            $with code_mappings unwind_shards walked_processes python_layouts seen_stacks walk_memory code_copies
            walk_counts stack_settings walks walks_under_way
        }
    };
}
pub(crate) use stack_maps;

macro_rules! declare {
    ({ $(#[$meta:meta])* $name:ident $($more:tt)* } $($map:ident)+) => {
        $(#[$meta])*
        pub struct $name {
            $(pub $map: MapHandle,)+
            $($more)*
        }
    };
}
use declare;

macro_rules! take {
    ({ $maps:ident $name:ident $($more:tt)* } $($map:ident)+) => {
        $name {
            $($map: libbpf_rs::MapHandle::try_from(&$maps.$map).context("share a map")?,)+
            $($more)*
        }
    };
}
pub(crate) use take;

macro_rules! reuse {
    ({ $open:ident, $shared:expr } $($map:ident)+) => {{
        use std::os::fd::AsFd;
        $($open.maps.$map.reuse_fd($shared.$map.as_fd())?;)+
    }};
}
pub(crate) use reuse;

shared_maps!(declare {
    /// What all objects share, created by `calls`.
    SharedMaps
    pub stacks: StackMaps,
});

stack_maps!(declare {
    /// What the programs that walk stacks share with each other and with [`crate::StackTables`].
    StackMaps
});
