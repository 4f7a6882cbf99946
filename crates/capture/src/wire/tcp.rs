//! TCP connections, as the kernel side tells of them.

use std::net::{Ipv6Addr, SocketAddr};

use super::types;

/// A segment was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmit {
    pub at_ns: u64,
    /// The number of the socket; 0 for one that no program has any more.
    pub inode: u64,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub round_trip_us: u32,
}

pub(super) fn decode_tcp(raw: types::tcp_record) -> Retransmit {
    Retransmit {
        at_ns: raw.head.at_ns,
        inode: raw.inode,
        local: SocketAddr::new(address(raw.own_address).to_canonical(), raw.own_port),
        remote: SocketAddr::new(address(raw.address).to_canonical(), raw.port),
        round_trip_us: raw.round_trip_us,
    }
}

/// The bytes stand in memory as they do on the wire.
pub(super) fn address(halves: [u64; 2]) -> Ipv6Addr {
    let [first, second] = halves.map(|half| u128::from(half.swap_bytes()));
    Ipv6Addr::from(first << 64 | second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Record, bytes_of};

    #[test]
    fn both_ends_of_a_connection_are_read() {
        let raw = types::tcp_record {
            head: types::record_head { kind: types::record_kind::RECORD_TCP.0, at_ns: 7, ..Default::default() },
            inode: 4711,
            own_address: [0, u64::from(u32::from_ne_bytes([10, 0, 0, 1])) << 32 | 0xffff_0000],
            address: [0, 1 << 56],
            own_port: 40_000,
            port: 8080,
            round_trip_us: 250,
        };
        let Some(Record::Retransmit(read)) = Record::decode(bytes_of(&raw)) else { panic!("no retransmit") };
        assert_eq!((read.at_ns, read.inode, read.round_trip_us), (7, 4711, 250));
        assert_eq!((read.local.to_string(), read.remote.to_string()), ("10.0.0.1:40000".into(), "[::1]:8080".into()));
    }
}
