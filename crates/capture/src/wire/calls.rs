//! Calls, as the kernel side tells of them.

use gpuwhy_apis::{Operand, Way, row};
use gpuwhy_model::{Direction, OwnValues, WaitReason};

use super::{StackHash, TaskId, task, types};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawCall {
    pub task: TaskId,
    pub row: u16,
    pub depth: u8,
    pub end_ns: u64,
    pub duration_ns: u64,
    pub runqueue_ns: u64,
    pub blocked_ns: u64,
    pub parent_start_ns: Option<u64>,
    /// The address the call returns to.
    pub caller: u64,
    pub stream: Option<u64>,
    pub handle: Option<u64>,
    pub bytes: Option<u64>,
    pub address: Option<u64>,
    pub direction: Option<Direction>,
    pub device: Option<u16>,
    pub ret: i32,
    pub wait_reason: Option<WaitReason>,
    pub woken_by: Option<TaskId>,
    pub preempted_by: Option<TaskId>,
    pub stack: Option<StackHash>,
    /// What only calls of its library have.
    pub own: Option<Box<OwnValues>>,
}

/// `own` are the row's own operands, where they travel along.
pub(super) fn decode_call(
    raw: types::call_record,
    details: types::call_details,
    own: Option<&[u64]>,
) -> Option<RawCall> {
    let row = row(raw.api as usize)?;
    let reads = &row.api.reads;
    let has = |operand: Operand, value: u64| (operand != Operand::None).then_some(value);
    Some(RawCall {
        task: TaskId { pid: raw.head.pid, tid: raw.tid },
        row: raw.api,
        depth: raw.depth,
        end_ns: raw.head.at_ns,
        duration_ns: raw.duration_ns,
        runqueue_ns: details.runqueue_ns,
        blocked_ns: details.blocked_ns,
        parent_start_ns: (raw.parent_start_ns != 0).then_some(raw.parent_start_ns),
        caller: raw.caller,
        stream: has(reads.stream, raw.stream),
        handle: has(reads.handle, raw.handle),
        bytes: (!reads.bytes.is_empty()).then_some(details.bytes),
        address: has(reads.address, details.address),
        direction: match reads.direction {
            Way::None => None,
            _ => Direction::from_index(raw.direction as usize),
        },
        device: u16::try_from(raw.device).ok(),
        ret: raw.ret,
        wait_reason: WaitReason::from_index(raw.wait_reason as usize),
        woken_by: task(details.woken_by),
        preempted_by: task(details.preempted_by),
        stack: StackHash::new(raw.stack),
        own: own.and_then(|read| row.own_values(read)).map(Box::new),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Record, bytes_of};
    use gpuwhy_apis::rows;

    #[test]
    fn a_call_record_keeps_every_field() {
        let row_index = rows().position(|row| row.api.name == "cuLaunchKernel").unwrap();
        let call = types::call_record {
            head: types::record_head { kind: 8, pid: 7, at_ns: 900 },
            tid: 8,
            api: row_index as u16,
            duration_ns: 100,
            parent_start_ns: 750,
            stream: 0x55,
            ret: -3,
            device: 1,
            wait_reason: 1,
            ..Default::default()
        };
        let details = types::call_details {
            runqueue_ns: 20,
            blocked_ns: 30,
            woken_by: types::task_id { pid: 9, tid: 10 },
            ..Default::default()
        };
        let raw = types::detailed_call { call, details };
        let Some(Record::Call(call)) = Record::decode(bytes_of(&raw)) else { panic!("not a call") };
        assert_eq!(call.task, TaskId { pid: 7, tid: 8 });
        assert_eq!((call.end_ns, call.duration_ns, call.runqueue_ns, call.blocked_ns), (900, 100, 20, 30));
        assert_eq!((call.parent_start_ns, call.stream, call.ret, call.device), (Some(750), Some(0x55), -3, Some(1)));
        assert_eq!(call.wait_reason, Some(WaitReason::Io));
        assert_eq!((call.woken_by, call.preempted_by), (Some(TaskId { pid: 9, tid: 10 }), None));
        assert_eq!((call.bytes, call.address, call.direction), (None, None, None));
    }
}
