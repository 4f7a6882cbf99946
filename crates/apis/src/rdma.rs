//! News of the fabric between hosts: libibverbs.
//!
//! A thread of whoever uses a device waits for news of it. Such calls are not kept: what they bring is.

use super::Operand::OutField32;
use super::{Api, Library};
use gpuwhy_model::Layer;

pub const LIBRARY: Library = Library {
    name: "rdma",
    layer: Layer::Fabric,
    markers: &["ibv_get_async_event", "ibv_ack_async_event"],
    linked_in: None,
    apis: APIS,
    own: None,
};

const APIS: &[Api] = apis! {
    // The handle is what happened, which follows a pointer or a number in what is stored.
    Fabric "ibv_get_async_event" ["ibv_get_async_event"] { handle: OutField32(1, 8) };
};
