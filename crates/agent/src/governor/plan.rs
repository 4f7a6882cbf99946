//! Which functions are watched how closely, so that tracing takes no more from any thread than it may.
//!
//! [`plan`] says what would fit into a budget, given what is called how often; [`Ladder`] turns a row of such plans into
//! moves that do not flap. Both are arithmetic: they read no clock and touch no probe.
//!
//! Each process is planned on its own. As long as its worst thread is over the target, the function that costs this
//! thread most goes down by one rung; functions of which each call counts come after all others. The order of these moves
//! does not depend on the target, only where they stop does: with a larger budget, no function is ever on a lower rung.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use gpuwhy_model::Rung;
use hashbrown::HashMap;

/// The least share of the time in windows that still says something.
pub const MIN_SHARE: f64 = 0.005;

/// With windows shorter than this share of the time, counting all calls in them is worth more than records of some.
pub const MIN_SHARE_FOR_RECORDS: f64 = 0.02;

/// More would cost as much as watching all the time.
pub const MAX_SHARE: f64 = 0.5;

/// How long there must be room for a higher rung before a function goes up.
pub const RAISE_AFTER: Duration = Duration::from_secs(3);

/// What one call costs its thread, in nanoseconds, by what is done with it.
#[derive(Clone, Copy, Debug)]
pub struct UnitCosts {
    pub kept_ns: f64,
    pub counted_ns: f64,
    /// What a record costs the tracer itself, divided by the number of CPUs.
    pub agent_record_ns_per_cpu: f64,
}

/// How often a thread calls a function. There is one for each thread and function.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub pid: u32,
    pub tid: u32,
    pub row: u16,
    /// Calls per second, over all time and not only in windows.
    pub rate: f64,
    /// What a hit costs more here than elsewhere, such as where the kernel has to single-step the instruction.
    pub extra_ns: f64,
    /// Each call counts (a wait, a copy, an allocation): others are looked at less closely first.
    pub is_spared: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// By process and row; what is not here is on [`Rung::Everything`].
    pub rungs: BTreeMap<(u32, u16), Rung>,
    /// The share of the time that windows may take; 1 when no function needs windows.
    pub burst_share: f64,
}

impl Wish {
    pub fn rung(&self, pid: u32, row: u16) -> Rung {
        self.rungs.get(&(pid, row)).copied().unwrap_or(Rung::Everything)
    }
}

/// What fits into `target`, a share of each thread's time. `fixed` is what hooks take from a thread (by pid and tid)
/// whatever the rungs are. Numbers that are negative or not finite count as 0.
pub fn plan(loads: &[Load], fixed: &HashMap<(u32, u32), f64>, costs: &UnitCosts, target: f64) -> Wish {
    let target = cost_of_share(target);
    let mut processes = processes(loads, fixed, costs);
    for process in &mut processes {
        process.fit(target);
    }
    let rungs = processes.iter().flat_map(Process::lowered).collect();
    Wish { rungs, burst_share: burst_share(&processes, target) }
}

/// What the process with the least room allows, since windows are open for all at once.
fn burst_share(processes: &[Process], target: Cost) -> f64 {
    processes.iter().filter_map(|process| process.burst_share(target)).fold(1.0, f64::min)
}

fn processes(loads: &[Load], fixed: &HashMap<(u32, u32), f64>, costs: &UnitCosts) -> Vec<Process> {
    let mut loads = loads.to_vec();
    loads.sort_unstable_by(order);
    loads.chunk_by(|one, next| one.pid == next.pid).map(|loads| Process::new(loads, fixed, costs)).collect()
}

/// Functions of a process lie next to each other, and equal plans come from equal loads in any order.
fn order(one: &Load, other: &Load) -> Ordering {
    let key = |load: &Load| (load.pid, load.row, load.tid);
    let numbers = || one.rate.total_cmp(&other.rate).then(one.extra_ns.total_cmp(&other.extra_ns));
    key(one).cmp(&key(other)).then_with(numbers)
}

/// Picoseconds that a thread loses in a second. Whole numbers have exact sums, whatever was added and taken away.
type Cost = u128;

const PICOSECONDS: f64 = 1e12;

fn cost_of_share(share: f64) -> Cost {
    (number(share) * PICOSECONDS) as Cost
}

/// The bound keeps products and sums within a [`Cost`]; anything real is far below it.
fn number(value: f64) -> f64 {
    if value.is_finite() { value.clamp(0.0, 1e15) } else { 0.0 }
}

/// One function in one thread.
struct Site {
    function: usize,
    thread: usize,
    is_spared: bool,
    /// If every call is kept, or counted, all the time.
    kept: Cost,
    counted: Cost,
    /// The same in the shortest windows that are of use.
    kept_in_bursts: Cost,
    counted_in_bursts: Cost,
}

impl Site {
    fn new(load: &Load, costs: &UnitCosts, function: usize, thread: usize) -> Self {
        let kept_ns = number(costs.kept_ns) + number(costs.agent_record_ns_per_cpu);
        let counted_ns = number(costs.counted_ns).min(kept_ns);
        let picoseconds = |ns: f64| number(load.rate) * (ns + number(load.extra_ns)) * 1000.0;
        let cost = |ns: f64, share: f64| (picoseconds(ns) * share).ceil() as Cost;
        Self {
            function,
            thread,
            is_spared: load.is_spared,
            kept: cost(kept_ns, 1.0),
            counted: cost(counted_ns, 1.0),
            kept_in_bursts: cost(kept_ns, MIN_SHARE_FOR_RECORDS),
            counted_in_bursts: cost(counted_ns, MIN_SHARE),
        }
    }

    /// The least that it costs on a rung.
    fn cost(&self, rung: Rung) -> Cost {
        match rung {
            Rung::Everything => self.kept,
            Rung::SlowOnly => self.counted,
            Rung::Bursts => self.kept_in_bursts,
            Rung::Counters => self.counted_in_bursts,
        }
    }

    /// What it costs while a window is open, on the rungs that have windows.
    fn cost_in_window(&self, rung: Rung) -> Option<Cost> {
        match rung {
            Rung::Everything | Rung::SlowOnly => None,
            Rung::Bursts => Some(self.kept),
            Rung::Counters => Some(self.counted),
        }
    }
}

struct Function {
    pid: u32,
    row: u16,
    rung: Rung,
    sites: Vec<usize>,
}

/// Whether it may go down before those that are spared, what it costs, and which site it is.
type Rank = (bool, Cost, usize);

struct Thread {
    fixed: Cost,
    total: Cost,
    /// What its sites cost, in the order in which they go down. Those that are no longer what the site costs are dropped
    /// when they come up.
    costliest: BinaryHeap<Rank>,
}

/// The functions and threads of one process on the way down.
struct Process {
    functions: Vec<Function>,
    threads: Vec<Thread>,
    sites: Vec<Site>,
    /// Totals of threads; outdated ones are dropped when they come up.
    worst: BinaryHeap<(Cost, usize)>,
    /// What a window is for. All functions of a process share the windows: a share that is too small for the records of
    /// one is too small for the records of all.
    windowed: Rung,
}

impl Process {
    /// From its loads, sorted by row.
    fn new(loads: &[Load], fixed: &HashMap<(u32, u32), f64>, costs: &UnitCosts) -> Self {
        let mut process = Self {
            functions: Vec::new(),
            threads: Vec::new(),
            sites: Vec::with_capacity(loads.len()),
            worst: BinaryHeap::new(),
            windowed: Rung::Bursts,
        };
        let mut threads = HashMap::new();
        for load in loads {
            let thread = *threads.entry(load.tid).or_insert_with(|| {
                let fixed = cost_of_share(fixed.get(&(load.pid, load.tid)).copied().unwrap_or(0.0));
                process.threads.push(Thread { fixed, total: fixed, costliest: BinaryHeap::new() });
                process.threads.len() - 1
            });
            process.add(load, costs, thread);
        }
        process.worst = process.threads.iter().enumerate().map(|(thread, at)| (at.total, thread)).collect();
        process
    }

    fn add(&mut self, load: &Load, costs: &UnitCosts, thread: usize) {
        if self.functions.last().is_none_or(|function| function.row != load.row) {
            let (pid, row) = (load.pid, load.row);
            self.functions.push(Function { pid, row, rung: Rung::Everything, sites: Vec::new() });
        }
        let function = self.functions.len() - 1;
        let site = Site::new(load, costs, function, thread);
        self.functions[function].sites.push(self.sites.len());
        self.threads[thread].total += site.kept;
        self.threads[thread].costliest.push((!site.is_spared, site.kept, self.sites.len()));
        self.sites.push(site);
    }

    fn fit(&mut self, target: Cost) {
        while let Some(thread) = self.worst_above(target) {
            match self.costliest(thread) {
                Some(function) => self.lower(function),
                // Nothing more can be done for this thread; there may be for the next.
                None => drop(self.worst.pop()),
            }
        }
    }

    fn worst_above(&mut self, target: Cost) -> Option<usize> {
        while let Some(&(total, thread)) = self.worst.peek() {
            if total == self.threads[thread].total {
                return (total > target).then_some(thread);
            }
            self.worst.pop();
        }
        None
    }

    /// The function that costs a thread most, among those that can still be lowered.
    fn costliest(&mut self, thread: usize) -> Option<usize> {
        let costliest = &mut self.threads[thread].costliest;
        while let Some(&(_, cost, site)) = costliest.peek() {
            let site = &self.sites[site];
            let rung = self.functions[site.function].rung;
            if cost > 0 && cost == site.cost(rung) && rung < Rung::Counters {
                return Some(site.function);
            }
            costliest.pop();
        }
        None
    }

    fn lower(&mut self, function: usize) {
        match self.functions[function].rung {
            Rung::Everything => self.put(function, Rung::SlowOnly),
            Rung::SlowOnly => self.put(function, self.windowed),
            Rung::Bursts => self.give_up_records(),
            Rung::Counters => {}
        }
    }

    fn give_up_records(&mut self) {
        self.windowed = Rung::Counters;
        for function in 0..self.functions.len() {
            if self.functions[function].rung == Rung::Bursts {
                self.put(function, Rung::Counters);
            }
        }
    }

    fn put(&mut self, function: usize, rung: Rung) {
        let function = &mut self.functions[function];
        for &index in &function.sites {
            let site = &self.sites[index];
            let thread = &mut self.threads[site.thread];
            thread.total = thread.total - site.cost(function.rung) + site.cost(rung);
            thread.costliest.push((!site.is_spared, site.cost(rung), index));
            self.worst.push((thread.total, site.thread));
        }
        function.rung = rung;
    }

    fn lowered(&self) -> impl Iterator<Item = ((u32, u16), Rung)> {
        let lowered = self.functions.iter().filter(|function| function.rung > Rung::Everything);
        lowered.map(|function| ((function.pid, function.row), function.rung))
    }

    /// The share of the time that windows may take for the target to hold in each thread; none without windows.
    fn burst_share(&self, target: Cost) -> Option<f64> {
        let mut outside: Vec<Cost> = self.threads.iter().map(|thread| thread.fixed).collect();
        let mut in_windows: Vec<Cost> = vec![0; self.threads.len()];
        for site in &self.sites {
            let rung = self.functions[site.function].rung;
            match site.cost_in_window(rung) {
                Some(cost) => in_windows[site.thread] += cost,
                None => outside[site.thread] += site.cost(rung),
            }
        }
        let threads = outside.into_iter().zip(in_windows).filter(|&(_, in_windows)| in_windows > 0);
        threads
            .map(|(outside, in_windows)| target.saturating_sub(outside) as f64 / in_windows as f64)
            .min_by(f64::total_cmp)
            .map(|share| share.clamp(MIN_SHARE, MAX_SHARE))
    }
}

/// One function of one process moves to another rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub pid: u32,
    pub row: u16,
    pub from: Rung,
    pub to: Rung,
}

/// Where each function stands. Down at once, as a thread is over its budget; up only when there was room for a while.
#[derive(Clone, Debug, Default)]
pub struct Ladder {
    /// What is not here is on [`Rung::Everything`].
    current: BTreeMap<(u32, u16), Rung>,
    raises: BTreeMap<(u32, u16), Raise>,
}

/// A function that waits to go up.
#[derive(Clone, Copy, Debug)]
struct Raise {
    since: Duration,
    /// The lowest rung there was room for since then.
    to: Rung,
}

impl Ladder {
    /// `tight` is planned with nearly all of the budget, `roomy` with clearly less: between the two, nothing moves.
    pub fn step(&mut self, now: Duration, tight: &Wish, roomy: &Wish) -> Vec<Change> {
        let functions: BTreeSet<_> = self.current.keys().chain(tight.rungs.keys()).copied().collect();
        let changes = functions.into_iter().filter_map(|(pid, row)| {
            let from = self.rung(pid, row);
            let to = self.next((pid, row), now, tight.rung(pid, row), roomy.rung(pid, row));
            (to != from).then_some(Change { pid, row, from, to })
        });
        changes.collect()
    }

    pub fn rung(&self, pid: u32, row: u16) -> Rung {
        self.current.get(&(pid, row)).copied().unwrap_or(Rung::Everything)
    }

    /// The functions that are not on the highest rung.
    pub fn lowered(&self) -> impl Iterator<Item = ((u32, u16), Rung)> {
        self.current.iter().map(|(&function, &rung)| (function, rung))
    }

    pub fn forget_process(&mut self, pid: u32) {
        self.current.retain(|&(of, _), _| of != pid);
        self.raises.retain(|&(of, _), _| of != pid);
    }

    fn next(&mut self, function: (u32, u16), now: Duration, tight: Rung, roomy: Rung) -> Rung {
        let current = self.rung(function.0, function.1);
        if tight > current {
            return self.put(function, tight);
        }
        if roomy >= current {
            self.raises.remove(&function);
            return current;
        }
        let raise = self.raises.entry(function).or_insert(Raise { since: now, to: roomy });
        raise.to = raise.to.max(roomy);
        let Raise { since, to } = *raise;
        if now.saturating_sub(since) < RAISE_AFTER { current } else { self.put(function, to) }
    }

    fn put(&mut self, function: (u32, u16), rung: Rung) -> Rung {
        self.raises.remove(&function);
        match rung {
            Rung::Everything => self.current.remove(&function),
            _ => self.current.insert(function, rung),
        };
        rung
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COSTS: UnitCosts = UnitCosts { kept_ns: 1_000.0, counted_ns: 600.0, agent_record_ns_per_cpu: 50.0 };
    const TARGET: f64 = 0.01;

    fn load(tid: u32, row: u16, rate: f64) -> Load {
        Load { pid: 1, tid, row, rate, extra_ns: 0.0, is_spared: false }
    }

    fn planned(loads: &[Load]) -> Wish {
        plan(loads, &HashMap::new(), &COSTS, TARGET)
    }

    #[test]
    fn what_fits_is_kept() {
        let wish = planned(&[load(1, 1, 4_000.0), load(1, 2, 5_000.0), load(2, 1, 9_000.0)]);
        assert_eq!(wish, Wish { rungs: BTreeMap::new(), burst_share: 1.0 });
    }

    #[test]
    fn a_function_called_a_little_too_often_loses_the_records_of_its_fast_calls() {
        let wish = planned(&[load(1, 1, 12_000.0), load(1, 2, 1_000.0)]);
        assert_eq!(wish.rungs, BTreeMap::from([((1, 1), Rung::SlowOnly)]));
        assert_eq!(wish.burst_share, 1.0);
    }

    #[test]
    fn a_cold_function_keeps_its_records_beside_a_hot_one() {
        let wish = planned(&[load(1, 1, 100_000.0), load(1, 2, 1_000.0), load(1, 3, 10.0)]);
        assert_eq!(wish.rungs, BTreeMap::from([((1, 1), Rung::Bursts)]));
        let left = TARGET - 1_010.0 * 1_050e-9;
        assert!((wish.burst_share - left / 0.105).abs() < 1e-9, "{}", wish.burst_share);
    }

    #[test]
    fn windows_too_short_for_records_only_count() {
        let wish = planned(&[load(1, 1, 800_000.0), load(1, 2, 100.0)]);
        assert_eq!(wish.rungs, BTreeMap::from([((1, 1), Rung::Counters)]));
        assert!(wish.burst_share > 0.02, "{}", wish.burst_share);
    }

    #[test]
    fn a_thread_beyond_help_does_not_hide_another() {
        let fixed = HashMap::from([((1, 1), 0.5)]);
        let wish = plan(&[load(1, 1, 10.0), load(2, 2, 12_000.0)], &fixed, &COSTS, TARGET);
        assert_eq!(wish.rung(1, 1), Rung::Counters);
        assert_eq!(wish.rung(1, 2), Rung::SlowOnly);
    }

    #[test]
    fn the_process_with_the_least_room_sets_the_windows() {
        let hot = |pid, rate| Load { pid, ..load(1, 1, rate) };
        let both = planned(&[hot(1, 100_000.0), hot(2, 200_000.0), hot(3, 10.0)]);
        assert_eq!(both.burst_share, planned(&[hot(2, 200_000.0)]).burst_share);
        assert_eq!(both.rungs.len(), 2);
    }

    #[test]
    fn calls_of_which_each_counts_are_looked_at_less_closely_only_when_nothing_else_is_left() {
        let waits = |rate| Load { is_spared: true, ..load(1, 2, rate) };
        // What waits costs more than what launches in the shortest windows, and yet it stays whole.
        let wish = planned(&[load(1, 1, 100_000.0), waits(4_000.0)]);
        assert!(wish.rung(1, 1) >= Rung::Bursts);
        assert_eq!(wish.rung(1, 2), Rung::Everything);
        // By itself too much for the target.
        let wish = planned(&[load(1, 1, 100_000.0), waits(100_000.0)]);
        assert!(wish.rung(1, 2) > Rung::Everything);
    }

    #[test]
    fn a_probe_that_is_single_stepped_goes_down_first() {
        let stepped = Load { extra_ns: 2_000.0, ..load(1, 2, 6_000.0) };
        let wish = planned(&[load(1, 1, 7_000.0), stepped]);
        assert!(wish.rung(1, 2) > wish.rung(1, 1));
    }

    proptest! {
        #[test]
        fn the_target_holds_wherever_the_shortest_windows_could_hold_it(loads in loads(), fixed in fixed(), target in target()) {
            let wish = plan(&loads, &fixed, &COSTS, target);
            assert_within(&loads, &fixed, &wish, target)?;
        }

        /// For each lowered function there is a thread for which it was lowered: whatever costs this thread more, on the
        /// rung that the function had to leave, is at least as low.
        #[test]
        fn a_function_is_lowered_only_after_those_that_cost_a_thread_more(
            loads in loads(), fixed in fixed(), target in target(),
        ) {
            let wish = plan(&loads, &fixed, &COSTS, target);
            for (&(pid, row), &rung) in &wish.rungs {
                let left = if rung > Rung::SlowOnly { Rung::SlowOnly } else { Rung::Everything };
                let mut sites = loads.iter().filter(|load| (load.pid, load.row) == (pid, row));
                let justified = sites.any(|site| {
                    let mut others = loads.iter().filter(|load| (load.pid, load.tid) == (pid, site.tid));
                    let bound = cost(site, left, 1.0) * (1.0 + 1e-9) + 1e-11;
                    let costs_no_more = |other: &Load| cost(other, left, 1.0) <= bound;
                    others.all(|other| match (site.is_spared, other.is_spared) {
                        (false, true) => true,
                        (true, false) => cost(other, left, 1.0) < 1e-11 || wish.rung(pid, other.row) >= rung,
                        _ => costs_no_more(other) || wish.rung(pid, other.row) >= rung,
                    })
                });
                prop_assert!(justified, "{pid} {row} {rung:?} in {wish:?}");
            }
        }

        #[test]
        fn a_larger_budget_never_lowers_a_function(loads in loads(), fixed in fixed(), target in target(), times in 1.0..10.0) {
            let small = plan(&loads, &fixed, &COSTS, target);
            for larger in [2.0 * target, times * target] {
                let large = plan(&loads, &fixed, &COSTS, larger);
                for load in &loads {
                    prop_assert!(large.rung(load.pid, load.row) <= small.rung(load.pid, load.row));
                }
            }
        }

        #[test]
        fn the_order_of_loads_does_not_matter(
            (loads, shuffled) in loads().prop_flat_map(|loads| (Just(loads.clone()), Just(loads).prop_shuffle())),
            fixed in fixed(),
            target in target(),
        ) {
            prop_assert_eq!(plan(&loads, &fixed, &COSTS, target), plan(&shuffled, &fixed, &COSTS, target));
        }

        #[test]
        fn windows_for_records_are_long_enough(mut loads in loads(), fixed in fixed(), target in target()) {
            loads.retain(|load| load.pid == 1);
            let wish = plan(&loads, &fixed, &COSTS, target);
            if wish.rungs.values().any(|&rung| rung == Rung::Bursts) {
                prop_assert!(wish.burst_share >= MIN_SHARE_FOR_RECORDS * (1.0 - 1e-6), "{wish:?}");
            }
        }

        #[test]
        fn no_number_breaks_a_plan(
            numbers in proptest::collection::vec((0..3u32, 0..3u32, 0..3u16, hostile(), hostile()), 0..20),
            fixed in proptest::collection::vec((0..3u32, 0..3u32, hostile()), 0..5),
            costs in (hostile(), hostile(), hostile()),
            target in hostile(),
        ) {
            let load = |(pid, tid, row, rate, extra_ns)| Load { pid, tid, row, rate, extra_ns, is_spared: row == 1 };
            let loads: Vec<_> = numbers.into_iter().map(load).collect();
            let fixed = fixed.into_iter().map(|(pid, tid, share)| ((pid, tid), share)).collect();
            let costs = UnitCosts { kept_ns: costs.0, counted_ns: costs.1, agent_record_ns_per_cpu: costs.2 };
            let wish = plan(&loads, &fixed, &costs, target);
            prop_assert!((MIN_SHARE..=1.0).contains(&wish.burst_share));
        }
    }

    fn loads() -> impl Strategy<Value = Vec<Load>> {
        let rate = prop_oneof![Just(0.0), (0.0..6.5f64).prop_map(|digits| 10f64.powf(digits))];
        let extra = prop_oneof![4 => Just(0.0), 1 => Just(1_500.0)];
        let sites = proptest::collection::btree_map((1..3u32, 1..5u32, 0..8u16), (rate, extra), 0..50);
        let load = |((pid, tid, row), (rate, extra_ns))| Load { pid, tid, row, rate, extra_ns, is_spared: row == 1 };
        sites.prop_map(move |sites| sites.into_iter().map(load).collect())
    }

    fn fixed() -> impl Strategy<Value = HashMap<(u32, u32), f64>> {
        let shares = proptest::collection::vec(((1..3u32, 1..5u32), 0.0..0.012), 0..5);
        shares.prop_map(|shares| shares.into_iter().collect())
    }

    fn target() -> impl Strategy<Value = f64> {
        prop_oneof![Just(TARGET), 0.0005..0.1]
    }

    fn hostile() -> impl Strategy<Value = f64> {
        prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(0.0), 0.0..1e6, proptest::num::f64::ANY]
    }

    /// Each thread is within the target that could be, with every function counted in the shortest windows.
    fn assert_within(
        loads: &[Load],
        fixed: &HashMap<(u32, u32), f64>,
        wish: &Wish,
        target: f64,
    ) -> Result<(), TestCaseError> {
        let rungs = loads.iter().map(|load| ((load.pid, load.row), Rung::Counters)).collect();
        let lowest = Wish { rungs, burst_share: MIN_SHARE };
        for load in loads {
            let total = |wish| total(loads, fixed, wish, load);
            let within = total(wish) <= target * (1.0 + 1e-6) + 1e-9;
            prop_assert!(within || total(&lowest) > target, "{} of {target}: {wish:?}", total(wish));
        }
        Ok(())
    }

    /// The share that a load takes of its thread.
    fn cost(load: &Load, rung: Rung, burst_share: f64) -> f64 {
        let kept_ns = COSTS.kept_ns + COSTS.agent_record_ns_per_cpu + load.extra_ns;
        let counted_ns = COSTS.counted_ns + load.extra_ns;
        let ns = match rung {
            Rung::Everything => kept_ns,
            Rung::SlowOnly => counted_ns,
            Rung::Bursts => burst_share * kept_ns,
            Rung::Counters => burst_share * counted_ns,
        };
        load.rate * ns * 1e-9
    }

    /// What tracing takes from the thread of a load.
    fn total(loads: &[Load], fixed: &HashMap<(u32, u32), f64>, wish: &Wish, of: &Load) -> f64 {
        let thread = (of.pid, of.tid);
        let sites = loads.iter().filter(|load| (load.pid, load.tid) == thread);
        let costs: f64 = sites.map(|load| cost(load, wish.rung(load.pid, load.row), wish.burst_share)).sum();
        costs + fixed.get(&thread).copied().unwrap_or(0.0)
    }

    /// Steps a ladder every half a second through the rates of one function, with a budget of 1 %.
    fn climb(rates: &[f64]) -> Vec<Rung> {
        let mut ladder = Ladder::default();
        let step = |(index, &rate): (usize, &f64)| {
            let loads = [load(1, 1, rate)];
            let wish = |budget| plan(&loads, &HashMap::new(), &COSTS, budget);
            ladder.step(Duration::from_millis(500) * index as u32, &wish(0.85 * 0.01), &wish(0.6 * 0.01));
            ladder.rung(1, 1)
        };
        rates.iter().enumerate().map(step).collect()
    }

    #[test]
    fn a_sudden_load_lowers_its_function_at_the_first_step() {
        assert_eq!(climb(&[10.0, 1e5]), [Rung::Everything, Rung::Bursts]);
    }

    #[test]
    fn a_load_that_alternates_at_the_edge_does_not_flap() {
        let alternating: Vec<f64> = (0..100).map(|index| if index % 2 == 0 { 8_200.0 } else { 7_900.0 }).collect();
        let rungs = climb(&alternating);
        assert!(rungs.iter().all(|&rung| rung == Rung::SlowOnly), "{rungs:?}");
    }

    #[test]
    fn pauses_shorter_than_the_wait_do_not_raise_a_function() {
        let bursty: Vec<f64> = (0..100).map(|index| if index % 6 == 0 { 1e5 } else { 0.0 }).collect();
        assert!(climb(&bursty).iter().all(|&rung| rung == Rung::Bursts));
    }

    #[test]
    fn a_function_comes_back_when_its_load_is_gone_for_three_seconds() {
        let rungs = climb(&[1e5, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0]);
        assert!(rungs[..7].iter().all(|&rung| rung == Rung::Bursts), "{rungs:?}");
        assert_eq!(rungs[7..], [Rung::Everything, Rung::Everything]);
    }

    #[test]
    fn a_function_rises_only_as_far_as_there_was_room_all_the_time() {
        let less = [9_500.0; 7];
        let rates: Vec<f64> = [1e5].into_iter().chain(less).chain([10.0; 8]).collect();
        let rungs = climb(&rates);
        assert_eq!(
            (rungs[6], rungs[7], rungs[13], rungs[14]),
            (Rung::Bursts, Rung::SlowOnly, Rung::SlowOnly, Rung::Everything)
        );
    }

    #[test]
    fn a_process_that_is_gone_leaves_no_rung_behind() {
        let mut ladder = Ladder::default();
        let wish = planned(&[load(1, 1, 1e5), Load { pid: 2, ..load(1, 1, 1e5) }]);
        assert_eq!(ladder.step(Duration::ZERO, &wish, &wish).len(), 2);
        ladder.forget_process(1);
        assert_eq!((ladder.rung(1, 1), ladder.rung(2, 1)), (Rung::Everything, Rung::Bursts));
    }
}
