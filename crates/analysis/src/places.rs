//! Where in the code: from the stacks of calls and waits to the lines that somebody can change.
//!
//! Stacks that show the same line of the user's own program count together; the line on which most time passed comes
//! first, then the lines of the program that led there, then what was called in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gpuwhy_model::{
    Call, Frame, FrameKind, ModuleId, Place, PlaceKind, PythonEnd, Role, StackId, StackSample, Stretch, TargetId,
    ThreadId, WalkEnd,
};
use gpuwhy_window::{LoadedStack, is_same_origin};

use crate::class::WaitClass;
use crate::situation::Situation;
use crate::waiting::Waiting;
use crate::words::share;

/// Lines of the program that are told besides the first.
const MOST_CALLERS: usize = 3;

/// Where whole stacks stand for at least this share of the time, the others are left out.
const LEAST_WHOLE: f64 = 0.1;

/// The places that stacks show, each with what it weighs.
pub(crate) fn of_stacks(
    situation: &Situation<'_>,
    role: Role,
    stacks: impl Iterator<Item = (StackId, u64)>,
) -> Vec<Place> {
    let heaviest = heaviest(&whole(&weighed(situation, stacks)));
    heaviest.map_or_else(Vec::new, |stack| of_stack(stack, role))
}

/// The site that weighs most, as `train.py:66`, and its share of the weight of all.
pub(crate) fn heaviest_line(
    situation: &Situation<'_>,
    stacks: impl Iterator<Item = (StackId, u64)>,
) -> Option<(String, f64)> {
    let stacks = whole(&weighed(situation, stacks));
    let site = heaviest(&stacks)?.site_frame()?;
    let sum = |stacks: &mut dyn Iterator<Item = &Weighed<'_>>| stacks.map(|(_, weight)| *weight).sum::<u64>();
    let own =
        sum(&mut stacks.iter().filter(|(stack, _)| stack.site_frame().is_some_and(|frame| key(frame) == key(site))));
    let file = site.file.as_deref().or(site.module.as_deref())?.rsplit('/').next()?;
    let line = site.line.map_or_else(|| format!("{} ({file})", site.function), |line| format!("{file}:{line}"));
    Some((line, share(own, sum(&mut stacks.iter()))))
}

/// A stack and what it weighs.
type Weighed<'w> = (&'w LoadedStack, u64);

/// Stacks that are known, each once.
fn weighed<'w>(situation: &Situation<'w>, stacks: impl Iterator<Item = (StackId, u64)>) -> Vec<Weighed<'w>> {
    let mut weights: BTreeMap<StackId, u64> = BTreeMap::new();
    for (stack, weight) in stacks {
        let sum = weights.entry(stack).or_default();
        *sum = sum.saturating_add(weight.max(1));
    }
    let known = |(id, weight)| Some((situation.window.stacks.get(&id)?, weight));
    weights.into_iter().filter_map(known).filter(|(stack, _)| stack.site.is_some()).collect()
}

/// A walk that ended early may have missed the line that is looked for, so it does not outvote those that came to their
/// end. It counts where hardly any did.
fn whole<'w>(stacks: &[Weighed<'w>]) -> Vec<Weighed<'w>> {
    let sum = |stacks: &[Weighed<'_>]| stacks.iter().fold(0u64, |sum, (_, weight)| sum.saturating_add(*weight));
    let whole: Vec<_> = stacks.iter().filter(|(stack, _)| is_whole(stack)).copied().collect();
    if share(sum(&whole), sum(stacks)) >= LEAST_WHOLE { whole } else { stacks.to_vec() }
}

/// Whether no frame is missing between the innermost one and the site.
fn is_whole(stack: &LoadedStack) -> bool {
    match stack.site_frame().map(|frame| frame.kind) {
        Some(FrameKind::Python) => matches!(stack.python_end, PythonEnd::Complete | PythonEnd::TooDeep),
        _ => matches!(stack.end, WalkEnd::Complete | WalkEnd::TooDeep),
    }
}

/// Of the site that weighs most, and of the ways there that which weighs most, the stack that weighs most: one line may be
/// many instructions, each with a stack of its own.
fn heaviest<'w>(stacks: &[Weighed<'w>]) -> Option<&'w LoadedStack> {
    let at_site = heaviest_alike(stacks, |stack| stack.site_frame().map(|frame| key(frame)))?;
    let way = |stack: &'w LoadedStack| Some(stack.frames.get(stack.site?..)?.iter().map(|frame| key(frame)).collect());
    let same_way = heaviest_alike(&at_site, |stack| -> Option<Vec<SiteKey<'w>>> { way(stack) })?;
    same_way.into_iter().max_by_key(|(_, weight)| *weight).map(|(stack, _)| stack)
}

/// Those that have something in common, of which all together weigh most.
fn heaviest_alike<'w, K: Ord>(
    stacks: &[Weighed<'w>],
    common: impl Fn(&'w LoadedStack) -> Option<K>,
) -> Option<Vec<Weighed<'w>>> {
    let mut alike: BTreeMap<K, (u64, Vec<Weighed<'w>>)> = BTreeMap::new();
    for &(stack, weight) in stacks {
        let Some(key) = common(stack) else { continue };
        let (sum, those) = alike.entry(key).or_default();
        *sum = sum.saturating_add(weight);
        those.push((stack, weight));
    }
    alike.into_values().max_by_key(|(sum, _)| *sum).map(|(_, those)| those)
}

type SiteKey<'f> = (FrameKind, &'f str, Option<&'f str>, Option<u32>);

fn key(frame: &Frame) -> SiteKey<'_> {
    (frame.kind, &frame.function, frame.file.as_deref(), frame.line)
}

fn of_stack(stack: &LoadedStack, role: Role) -> Vec<Place> {
    let Some(site) = stack.site else { return Vec::new() };
    let Some(first) = stack.frames.get(site) else { return Vec::new() };
    let is_like_it = |frame: &&Arc<Frame>| is_same_origin(frame, first) && frame.line.is_some();
    let callers = stack.frames.iter().skip(site + 1).filter(is_like_it).take(MOST_CALLERS);
    let called =
        stack.frames[..site].iter().find(|frame| frame.kind != FrameKind::Kernel && !frame.function.is_empty());
    let mut places: Vec<Place> =
        std::iter::once(first).chain(callers).chain(called).filter_map(|frame| place(frame, role)).collect();
    places.dedup();
    places
}

fn place(frame: &Frame, role: Role) -> Option<Place> {
    let file = frame.file.clone().or_else(|| frame.module.clone())?;
    let function = (!frame.function.is_empty()).then(|| frame.function.clone());
    Some(Place { kind: frame.kind.into(), file, line: frame.line, function, role })
}

/// Where the calls wanted of a thread were made; the module they were issued from where no stack was taken.
pub(crate) fn of_calls(situation: &Situation<'_>, thread: ThreadId, is_wanted: impl Fn(&Call) -> bool) -> Vec<Place> {
    let wanted = || situation.window.calls.rows.iter().filter(|call| call.thread == thread && is_wanted(call));
    let stacks = wanted().filter_map(|call| Some((call.stack_id?, call.duration_ns)));
    let places = of_stacks(situation, Role::Victim, stacks);
    if !places.is_empty() {
        return places;
    }
    let places = of_stacks(situation, Role::Victim, samples_in_calls(situation, thread));
    if !places.is_empty() {
        return places;
    }
    let mut callers: BTreeMap<ModuleId, u64> = BTreeMap::new();
    for call in wanted() {
        if let Some(caller) = call.caller {
            let sum = callers.entry(caller).or_default();
            *sum = sum.saturating_add(call.duration_ns.max(1));
        }
    }
    let caller = callers.into_iter().max_by_key(|(_, ns)| *ns);
    caller.and_then(|(caller, _)| of_module(situation, Some(caller))).into_iter().collect()
}

/// Where a thread was seen running inside of the GPU's libraries: calls that come too often have no stacks of their own.
fn samples_in_calls(situation: &Situation<'_>, thread: ThreadId) -> impl Iterator<Item = (StackId, u64)> {
    const LIBRARIES: &[&str] = &["libcuda.", "libcudart", "libnccl", "libamdhip64"];
    let own = situation.window.samples.iter().filter(move |sample| sample.thread == thread);
    own.filter(|sample| is_inside(situation, sample.stack, LIBRARIES)).map(|sample| (sample.stack, sample.count))
}

/// Where a thread was seen running at lines from which no call of the GPU's libraries is made.
pub(crate) fn beside_calls<'w>(
    situation: &Situation<'w>,
    thread: ThreadId,
) -> impl Iterator<Item = (StackId, u64)> + use<'w> {
    let window = situation.window;
    let site = |stack: StackId| window.stacks.get(&stack).and_then(|stack| stack.site_frame()).map(|frame| key(frame));
    let calls = window.calls.rows.iter().filter(|call| call.thread == thread).filter_map(|call| call.stack_id);
    let in_calls = samples_in_calls(situation, thread).map(|(stack, _)| stack);
    let calling: BTreeSet<SiteKey<'w>> = calls.chain(in_calls).filter_map(site).collect();
    let own = window.samples.iter().filter(move |sample| sample.thread == thread);
    let is_beside = move |sample: &&StackSample| site(sample.stack).is_some_and(|site| !calling.contains(&site));
    own.filter(is_beside).map(|sample| (sample.stack, sample.count))
}

/// Whether a stack leads through one of these libraries, by the beginnings of their files' names.
pub(crate) fn is_inside(situation: &Situation<'_>, stack: StackId, libraries: &[&str]) -> bool {
    let is_one = |frame: &Arc<Frame>| {
        let file = frame.module.as_deref().and_then(|module| module.rsplit('/').next()).unwrap_or_default();
        libraries.iter().any(|library| file.starts_with(library))
    };
    situation.window.stacks.get(&stack).is_some_and(|stack| stack.frames.iter().any(is_one))
}

pub(crate) fn of_module(situation: &Situation<'_>, module: Option<ModuleId>) -> Option<Place> {
    let path = situation.window.modules.get(&module?)?;
    Some(Place { kind: PlaceKind::Module, file: path.clone(), line: None, function: None, role: Role::Victim })
}

/// Where a thread waited.
pub(crate) fn of_waits(
    situation: &Situation<'_>,
    thread: ThreadId,
    role: Role,
    is_wanted: impl Fn(WaitClass) -> bool,
) -> Vec<Place> {
    let wanted = |waiting: &&Waiting<'_>| waiting.class.is_some_and(&is_wanted);
    let stacks = situation.waits(thread).iter().filter(wanted);
    of_stacks(
        situation,
        role,
        stacks.filter_map(|waiting| Some((waiting.stretch.stack?, waiting.stretch.all.blocked_ns))),
    )
}

/// What a thread computed.
pub(crate) fn of_samples(situation: &Situation<'_>, thread: ThreadId, role: Role) -> Vec<Place> {
    let own = situation.window.samples.iter().filter(|sample| sample.thread == thread);
    of_stacks(situation, role, own.map(|sample| (sample.stack, sample.count)))
}

/// What a thread was doing when it ended the waits of another.
pub(crate) fn of_waker(situation: &Situation<'_>, waker: ThreadId, waiter: ThreadId) -> Vec<Place> {
    let mut stacks = Vec::new();
    let mut before_ns: BTreeMap<Option<TargetId>, u64> = BTreeMap::new();
    for waiting in situation.waits(waiter) {
        let Some(by) = waiting.ended_by.filter(|by| by.thread == waker) else { continue };
        let Stretch { target, waker_stack, all, .. } = *waiting.stretch;
        let waited_ns = before_ns.entry(target).or_default();
        *waited_ns = waited_ns.saturating_add(all.blocked_ns);
        // A timer cuts a wait into pieces; the last one says who let go, and where.
        if !by.is_inferred {
            stacks.extend(waker_stack.map(|stack| (stack, *waited_ns)));
            before_ns.remove(&target);
        }
    }
    of_stacks(situation, Role::Culprit, stacks.into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_model::{ProcessId, StandsFor, TargetKind, WaitReason, WaitTarget};
    use gpuwhy_window::{Window, site_position};

    const MS: u64 = 1_000_000;
    const WAITER: ThreadId = ThreadId(1);
    const HOLDER: ThreadId = ThreadId(2);
    const LOCK: TargetId = TargetId(1);

    fn native(function: &str, line: u32) -> Frame {
        Frame { module: Some("/srv/job".into()), ..frame(FrameKind::Native, function, line) }
    }

    fn frame(kind: FrameKind, function: &str, line: u32) -> Frame {
        Frame { kind, function: function.into(), file: Some("job.c".into()), line: Some(line), ..Frame::default() }
    }

    fn libc(function: &str) -> Frame {
        Frame { module: Some("/usr/lib/libc.so.6".into()), ..native(function, 9) }
    }

    fn stack(end: WalkEnd, frames: Vec<Frame>) -> LoadedStack {
        let site = site_position(frames.iter());
        LoadedStack { frames: frames.into_iter().map(Arc::new).collect(), end, site, ..LoadedStack::default() }
    }

    /// The lines of the places that these stacks show, with their weights.
    fn lines(stacks: Vec<(LoadedStack, u64)>) -> Vec<Option<u32>> {
        let mut window = Window::default();
        let mut weights = Vec::new();
        for (id, (stack, weight)) in (1..).map(StackId).zip(stacks) {
            window.stacks.insert(id, stack);
            weights.push((id, weight));
        }
        let places = of_stacks(&Situation::new(&window), Role::Victim, weights.into_iter());
        places.iter().map(|place| place.line).collect()
    }

    #[test]
    fn stacks_with_the_same_line_count_together() {
        let one = |line, caller| stack(WalkEnd::Complete, vec![native("work", line), native("run", caller)]);
        assert_eq!(lines(vec![(one(1, 5), 30), (one(2, 6), 20), (one(2, 7), 15)]), [Some(2), Some(6)]);
    }

    #[test]
    fn the_way_to_a_line_is_the_one_that_was_gone_most_often() {
        let met = |caller| stack(WalkEnd::Complete, vec![native("burn", 1), native("run", caller)]);
        assert_eq!(lines(vec![(met(8), 3), (met(7), 2), (met(7), 2)]), [Some(1), Some(7)]);
    }

    #[test]
    fn walks_that_ended_early_do_not_outvote_those_that_came_to_their_end() {
        let cut = || stack(WalkEnd::NoFramePointer, vec![libc("read"), native("caller", 2)]);
        let complete = || stack(WalkEnd::Complete, vec![libc("read"), native("reader", 1), native("caller", 2)]);
        assert_eq!(lines(vec![(cut(), 60), (complete(), 40)])[..2], [Some(1), Some(2)]);
        assert_eq!(lines(vec![(cut(), 99), (complete(), 1)])[0], Some(2), "hardly any came to its end");
        assert_eq!(lines(vec![(cut(), 1)])[0], Some(2), "none came to its end");
    }

    #[test]
    fn a_line_of_python_is_known_however_the_native_walk_ended() {
        let python = |line, python_end| {
            let frames = vec![libc("futex_wake"), frame(FrameKind::Python, "f", line)];
            LoadedStack { python_end, ..stack(WalkEnd::NoFramePointer, frames) }
        };
        let stacks = vec![(python(1, PythonEnd::Complete), 20), (python(2, PythonEnd::Broken), 80)];
        assert_eq!(lines(stacks)[0], Some(1));
    }

    #[test]
    fn callers_in_libraries_are_not_lines_of_the_program() {
        let frames = vec![native("work", 1), native("run", 2), libc("start_thread"), libc("clone3")];
        assert_eq!(lines(vec![(stack(WalkEnd::Complete, frames), 1)]), [Some(1), Some(2)]);
    }

    fn piece(start_ms: u64, blocked_ns: u64, woken_by: Option<ThreadId>, waker_stack: Option<StackId>) -> Stretch {
        Stretch {
            start_ns: start_ms * MS,
            thread: WAITER,
            blocked_ns,
            runqueue_ns: 0,
            is_throttled: false,
            reason: Some(WaitReason::Futex),
            op: None,
            target: Some(LOCK),
            woken_by,
            taken_by: [None; 2],
            all: StandsFor { count: 1, blocked_ns, runqueue_ns: 0 },
            stack: None,
            waker_stack,
        }
    }

    #[test]
    fn the_piece_that_names_the_waker_stands_for_those_that_a_timer_ended() {
        let mut window = Window::default();
        let target = WaitTarget { process: ProcessId(1), kind: TargetKind::Gil, name: "0x10".into() };
        window.targets.insert(LOCK, target);
        window.stacks.insert(StackId(1), stack(WalkEnd::Complete, vec![native("compute", 1)]));
        window.stacks.insert(StackId(2), stack(WalkEnd::Complete, vec![native("rest", 2)]));
        window.stretches.rows = vec![
            piece(0, 5 * MS, None, None),
            piece(6, MS / 100, Some(HOLDER), Some(StackId(1))),
            piece(10, 4 * MS, Some(HOLDER), Some(StackId(2))),
        ];
        let places = of_waker(&Situation::new(&window), HOLDER, WAITER);
        assert_eq!(places.first().and_then(|place| place.line), Some(1), "{places:?}");
    }
}
