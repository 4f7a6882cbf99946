//! The compiled call tracer as the skeleton generator read it: its maps and programs, and the types of `wire.h`, which
//! all families share.

#![allow(clippy::all, clippy::restriction, dead_code)]

include!(concat!(env!("OUT_DIR"), "/calls.skel.rs"));
