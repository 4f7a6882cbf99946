//! What calls do to the work that a device has.

use crate::{Call, CallClass, Meaning};

/// A wait that returned sooner did not have to wait.
pub const HAD_TO_WAIT_NS: u64 = 30_000;

/// What a call does to the work that a device has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeviceAction {
    /// Work for a stream.
    Submit(u64),
    /// A place between what a stream was given, that somebody may wait for.
    Mark { event: u64, stream: u64 },
    /// Returns when the work is done.
    Wait(Awaited),
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Awaited {
    All,
    Stream(u64),
    Event(u64),
}

impl Call {
    /// What the call does to the work that a device has, if anything.
    pub fn device_action(&self, meaning: &Meaning) -> Option<DeviceAction> {
        let stream = self.stream.unwrap_or(0);
        if meaning.gives_work() {
            return Some(DeviceAction::Submit(stream));
        }
        if meaning.awaits_work() {
            let event = self.handle.filter(|_| meaning.is_wait).map(Awaited::Event);
            return Some(DeviceAction::Wait(self.stream.map(Awaited::Stream).or(event).unwrap_or(Awaited::All)));
        }
        // Records and waits of streams have both; which of the two it is does not matter much.
        let event = self.handle.filter(|_| meaning.class == CallClass::Event);
        event.map(|event| DeviceAction::Mark { event, stream })
    }
}
