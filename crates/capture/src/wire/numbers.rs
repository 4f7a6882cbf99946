//! Words that the kernel side knows by number: each has the number that `wire.h` gives it.

use gpuwhy_model::{Histogram, LossReason, PythonEnd, StackMoment, TargetKind, WaitReason, WalkEnd, WorkKind};
use gpuwhy_stacks::table::Kind as RuleKind;

use super::types;

/// Compares every variant with its constant. One that is not listed does not compile; `end` is the number after the last.
macro_rules! same_numbers {
    ($rust:ident = $c:ident { $($variant:ident = $constant:ident),+ $(,)? } $(end $end:ident)?) => {{
        let constant = |one: $rust| match one {
            $($rust::$variant => types::$c::$constant,)+
        };
        let all = [$($rust::$variant),+];
        for one in all {
            assert_eq!(one as u32, constant(one).0, "{one:?}");
        }
        $(assert_eq!(types::$c::$end.0 as usize, all.len(), stringify!($end));)?
    }};
}

#[test]
fn reasons_and_targets_of_waits_have_the_kernels_numbers() {
    same_numbers!(WaitReason = wait_reason {
        Futex = WAIT_FUTEX,
        Io = WAIT_IO,
        Fault = WAIT_FAULT,
        Sleep = WAIT_SLEEP,
        Poll = WAIT_POLL,
        Stream = WAIT_STREAM,
        Ioctl = WAIT_IOCTL,
        Other = WAIT_OTHER,
    } end WAIT_REASONS);
    same_numbers!(TargetKind = target_kind {
        Lock = TARGET_LOCK,
        Signal = TARGET_SIGNAL,
        Gil = TARGET_GIL,
        Pipe = TARGET_PIPE,
        Unix = TARGET_UNIX,
        Tcp = TARGET_TCP,
        Socket = TARGET_SOCKET,
        Eventfd = TARGET_EVENTFD,
        File = TARGET_FILE,
        Device = TARGET_DEVICE,
        Other = TARGET_OTHER,
    } end TARGET_KINDS);
    same_numbers!(WorkKind = work_kind {
        Reclaim = WORK_RECLAIM,
        Compaction = WORK_COMPACTION,
        Ioctl = WORK_IOCTL,
    } end WORK_KINDS);
}

#[test]
fn moments_and_ends_of_walks_have_the_kernels_numbers() {
    same_numbers!(StackMoment = stack_moment {
        Call = MOMENT_CALL,
        Wait = MOMENT_WAIT,
        Waker = MOMENT_WAKER,
        Sample = MOMENT_SAMPLE,
    } end MOMENTS);
    same_numbers!(WalkEnd = walk_end {
        Complete = WALK_COMPLETE,
        TooDeep = WALK_TOO_DEEP,
        Unreadable = WALK_UNREADABLE,
        NoMapping = WALK_NO_MAPPING,
        NoRule = WALK_NO_RULE,
        NoProgress = WALK_NO_PROGRESS,
        NoFramePointer = WALK_NO_FRAME_POINTER,
        NoProcess = WALK_NO_PROCESS,
        FramePointers = WALK_FRAME_POINTERS,
        NotWalked = WALK_NOT_WALKED,
    } end WALK_ENDS);
    same_numbers!(PythonEnd = python_end {
        NotPython = PYTHON_NONE,
        Complete = PYTHON_COMPLETE,
        TooDeep = PYTHON_TOO_DEEP,
        Unreadable = PYTHON_UNREADABLE,
        NoThread = PYTHON_NO_THREAD,
        Broken = PYTHON_BROKEN,
    } end PYTHON_ENDS);
    same_numbers!(RuleKind = rule_kind {
        None = RULE_NONE,
        End = RULE_END,
        Sp = RULE_SP,
        Bp = RULE_BP,
        Plt = RULE_PLT,
        DerefBp = RULE_AT_BP,
        Signal = RULE_SIGNAL,
        DerefSp = RULE_AT_SP,
    });
}

/// The kernel counts the first reasons; those after them are user space's own.
#[test]
fn losses_that_the_kernel_counts_have_its_numbers() {
    let counted = [
        (LossReason::RingFull, types::loss_reason::LOSS_RING_FULL),
        (LossReason::Uncounted, types::loss_reason::LOSS_UNCOUNTED),
        (LossReason::NoThreadState, types::loss_reason::LOSS_NO_THREAD_STATE),
        (LossReason::TooDeep, types::loss_reason::LOSS_TOO_DEEP),
        (LossReason::Abandoned, types::loss_reason::LOSS_ABANDONED),
        (LossReason::Unmatched, types::loss_reason::LOSS_UNMATCHED),
        (LossReason::LifeRingFull, types::loss_reason::LOSS_LIFE_RING_FULL),
        (LossReason::CutOff, types::loss_reason::LOSS_CUT_OFF),
        (LossReason::WaitRingFull, types::loss_reason::LOSS_WAIT_RING_FULL),
        (LossReason::StackRingFull, types::loss_reason::LOSS_STACK_RING_FULL),
    ];
    for (reason, constant) in counted {
        assert_eq!(reason as u32, constant.0, "{reason:?}");
    }
    assert_eq!(types::loss_reason::LOSS_REASONS.0 as usize, counted.len());
}

#[test]
fn both_sides_have_the_same_buckets() {
    assert_eq!(types::limits::HISTOGRAM.0 as usize, Histogram::BUCKETS);
}
