//! What the kernel side evaluates for each row of the call table.

use gpuwhy_apis::{Communicator, DeviceChange, Known, Operand, Row, Way, When};

use crate::skeleton::types;

/// What the kernel side evaluates for a row.
pub(crate) fn spec(row: &Row, keep_min_ns: u64) -> types::api_spec {
    let api = row.api;
    let reads = &api.reads;
    let mut bytes = [types::operand::default(); types::limits::MAX_FACTORS.0 as usize];
    for (factor, operand) in bytes.iter_mut().zip(reads.bytes) {
        *factor = encode(*operand);
    }
    let (change, device) = encode_device(reads.device);
    let direction = encode_way(reads.direction);
    let (communicating, communicator) = encode_communicator(reads.communicator, reads.handle);
    let reads_more = [bytes[0], encode(reads.address), direction, device].iter().any(|operand| operand.kind != 0);
    types::api_spec {
        bytes,
        stream: encode(reads.stream),
        address: encode(reads.address),
        handle: encode(reads.handle),
        direction,
        device,
        keep_min_ns,
        device_change: change.0,
        reads_more: reads_more.into(),
        learns: (api.when == When::Learning).into(),
        own_count: row.own_reads().count() as u32,
        communicator,
        communicating: communicating.0,
        reserved: 0,
        waits: api.meaning.awaits_work().into(),
        submits: api.meaning.gives_work().into(),
    }
}

/// What the kernel side reads of a row that only its library has.
pub(crate) fn own_operands(row: &Row) -> types::own_operands {
    let mut own = types::own_operands::default();
    for (place, operand) in own.operands.iter_mut().zip(row.own_reads()) {
        *place = encode(operand);
    }
    own
}

fn encode(operand: Operand) -> types::operand {
    use types::operand_kind as of;
    let (kind, slot, offset, constant) = match operand {
        Operand::None => (of::OPERAND_NONE, 0, 0, 0),
        Operand::Const(value) => (of::OPERAND_CONST, 0, 0, value),
        Operand::Arg(slot) => (of::OPERAND_ARG, slot, 0, 0),
        Operand::Arg32(slot) => (of::OPERAND_ARG32, slot, 0, 0),
        Operand::Field(slot, offset) => (of::OPERAND_FIELD, slot, offset, 0),
        Operand::Field32(slot, offset) => (of::OPERAND_FIELD32, slot, offset, 0),
        Operand::Out(slot) => (of::OPERAND_OUT, slot, 0, 0),
        Operand::Out32(slot) => (of::OPERAND_OUT32, slot, 0, 0),
        Operand::OutField32(slot, offset) => (of::OPERAND_OUT32, slot, offset, 0),
        Operand::SizeOf(slot, sizes) => (of::OPERAND_SIZE_OF, slot, 0, sizes),
        Operand::Hash(slot) => (of::OPERAND_HASH, slot, 0, 0),
        Operand::HashAt(slot) => (of::OPERAND_HASH_AT, slot, 0, 0),
        Operand::Of(known) => (of::OPERAND_KNOWN, 0, 0, encode_known(known).0),
    };
    types::operand { kind: kind.0 as u8, slot, offset, constant }
}

fn encode_known(known: Known) -> types::known {
    use types::known as of;
    match known {
        Known::Id => of::KNOWN_ID,
        Known::Rank => of::KNOWN_RANK,
        Known::Ranks => of::KNOWN_RANKS,
        Known::Sequence => of::KNOWN_SEQUENCE,
        Known::Group => of::KNOWN_GROUP,
        Known::Child => of::KNOWN_CHILD,
    }
}

/// What is done with a communicator, and where its handle is found at entry.
fn encode_communicator(communicator: Communicator, handle: Operand) -> (types::communicating, types::operand) {
    use types::communicating as does;
    let (kind, found) = match communicator {
        Communicator::None => (does::COMMUNICATES_NOT, Operand::None),
        Communicator::Creates => (does::COMMUNICATOR_CREATES, Operand::None),
        Communicator::CreatesAll(list) => (does::COMMUNICATOR_CREATES_ALL, list),
        Communicator::Splits(parent) => (does::COMMUNICATOR_SPLITS, parent),
        Communicator::Collective => (does::COMMUNICATOR_COLLECTIVE, handle),
        Communicator::PointToPoint => (does::COMMUNICATOR_POINT_TO_POINT, handle),
        Communicator::Ends => (does::COMMUNICATOR_ENDS, handle),
        Communicator::BeginsGroup => (does::COMMUNICATOR_BEGINS_GROUP, Operand::None),
        Communicator::EndsGroup => (does::COMMUNICATOR_ENDS_GROUP, Operand::None),
    };
    (kind, encode(found))
}

fn encode_way(way: Way) -> types::operand {
    match way {
        Way::None => encode(Operand::None),
        Way::Fixed(direction) => encode(Operand::Const(direction as u32)),
        Way::Arg(slot) => encode(Operand::Arg32(slot)),
        Way::Field(slot, offset) => encode(Operand::Field32(slot, offset)),
    }
}

fn encode_device(change: DeviceChange) -> (types::device_change, types::operand) {
    use types::device_change as kind;
    match change {
        DeviceChange::None => (kind::DEVICE_KEEP, encode(Operand::None)),
        DeviceChange::SelectDevice(device) => (kind::DEVICE_SELECT, encode(device)),
        DeviceChange::SelectContext => (kind::DEVICE_SELECT_CONTEXT, encode(Operand::None)),
        DeviceChange::BindContext(device) => (kind::DEVICE_BIND_CONTEXT, encode(device)),
        DeviceChange::BindAndSelect(device) => (kind::DEVICE_BIND_AND_SELECT, encode(device)),
        DeviceChange::PushContext => (kind::DEVICE_PUSH_CONTEXT, encode(Operand::None)),
        DeviceChange::PopContext => (kind::DEVICE_POP_CONTEXT, encode(Operand::None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_apis::rows;

    #[test]
    fn rows_fit_into_the_kernel_tables() {
        assert!(rows().count() < types::limits::MAX_APIS.0 as usize);
        for row in rows() {
            assert!(row.api.reads.bytes.len() <= types::limits::MAX_FACTORS.0 as usize, "{}", row.api.name);
            assert!(row.own_reads().count() <= types::limits::MAX_OWN.0 as usize, "{}", row.api.name);
        }
    }
}
