//! Keeps what tracing costs under the budget.
//!
//! Each quarter of a second: how often is each function called, what does that cost each thread ([`account`]), and what
//! has to give so that no thread loses more than the budget ([`plan`])? Functions that are called too often are looked
//! at in bursts ([`bursts`]), from which their counts are estimated ([`estimate`]). What is unusual by a function's own
//! standard ([`baseline`]) brings detail back for a moment, and with it the calls of the last seconds.

mod account;
mod baseline;
mod bursts;
mod estimate;
mod plan;
mod stacks;
mod stalls;
mod usage;

use std::time::{Duration, Instant};

use gpuwhy_apis::row;
use gpuwhy_capture::{CountDelta, InBursts, MOST_EXEMPT, Owner, Record, Sampling, TaskId, ThreadSnapshot, Tracer};
use gpuwhy_model::{CallClass, Rung, Sample};
use hashbrown::HashMap;

use crate::clock::{self, Reading};
use crate::discovery::FileId;
use crate::items::{Counted, Item, RungNews, Usage};
use account::{Account, Prices};
use baseline::Baselines;
use bursts::{Bursts, Due};
use plan::{Change, Ladder, Load, UnitCosts, Wish, plan};
pub use stacks::StackChoice;
use stacks::StackShare;
use stalls::Stalls;
use usage::OwnUsage;

/// What the user wants tracing to cost, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct CostOptions {
    /// The share of any thread's time that tracing may take; `None` for all it needs.
    pub budget: Option<f64>,
    /// Puts every function that is called often on this rung, whatever it costs.
    pub pinned: Option<Rung>,
    pub stacks: StackChoice,
}

/// What tracing takes from a thread, as its clocks are reported.
pub struct Second {
    /// In the order of the snapshots.
    pub taken_ns: Vec<u64>,
    pub usage: Usage,
    /// The share of its time that the thread lost from which most was taken.
    pub worst: f64,
    /// What changed for the whole trace.
    pub news: Option<&'static str>,
}

const STEP: Duration = Duration::from_millis(250);
/// Shares of the budget: below the first a function comes down, below the second one may go up again. What is left is
/// for what nobody foresees.
const TIGHT: f64 = 0.85;
const ROOMY: f64 = 0.6;
/// What the tracer itself uses cannot be had by looking away from threads, and they are not made to pay for all of it.
const LEAST_TARGET: f64 = 0.6;
/// What cannot be changed counts up to this part of the target, or looking away from everything would not be enough.
const MOST_FIXED: f64 = 0.5;
/// Functions that are called less often than this stay as they are when a rung is pinned.
const PINNED_FROM: f64 = 2_000.0;
/// How far back calls are brought back after a stall.
const LOOK_BACK_NS: u64 = Duration::from_secs(5).as_nanos() as u64;

pub struct Governor {
    options: CostOptions,
    /// Calls shorter than this are never kept.
    keep_min_ns: u64,
    prices: Prices,
    account: Account,
    baselines: Baselines,
    bursts: Bursts,
    ladder: Ladder,
    own: OwnUsage,
    started: Instant,
    next_step: Instant,
    /// When what is seen in bursts was last changed.
    sampling_since_ns: u64,
    stalls: Stalls,
    stacks: StackShare,
    items: Vec<Item>,
}

impl Governor {
    pub fn new(options: CostOptions, keep_min_ns: u64, tracer: &Tracer<FileId>, now: Instant) -> Self {
        Self {
            options: CostOptions { budget: options.budget.filter(|&share| share > 0.0), ..options },
            keep_min_ns,
            prices: Prices::new(tracer.calibration, 1.0),
            account: Account::default(),
            baselines: Baselines::default(),
            bursts: Bursts::new(now, clock::read(libc::CLOCK_MONOTONIC)),
            ladder: Ladder::default(),
            own: OwnUsage::start(now, tracer),
            started: now,
            next_step: now + STEP,
            sampling_since_ns: 0,
            stalls: Stalls::default(),
            stacks: StackShare::new(options.stacks, options.budget),
            items: Vec::new(),
        }
    }

    /// When there is something to do next.
    pub fn due_at(&self, tracer: &Tracer<FileId>) -> Instant {
        if tracer.sampling().rows.is_empty() { self.next_step } else { self.next_step.min(self.bursts.due_at()) }
    }

    /// Does what is due.
    pub fn turn(&mut self, tracer: &mut Tracer<FileId>) -> Vec<Item> {
        let now = Instant::now();
        if !tracer.sampling().rows.is_empty() {
            match self.bursts.due(now) {
                Due::Open => match tracer.open_burst(self.bursts.looks_long()) {
                    Some(at_ns) => self.bursts.opened(Instant::now(), at_ns),
                    None => self.bursts.try_again(now),
                },
                Due::Close => self.close_burst(tracer),
                Due::Nothing => {}
            }
        }
        if now >= self.next_step {
            self.next_step = now + STEP;
            self.glance(tracer, now);
            self.raise_after_stalls(tracer, now);
            self.lower_after_stalls(tracer, now);
            if self.options.budget.is_some() {
                self.climb(tracer, now);
            }
        }
        std::mem::take(&mut self.items)
    }

    fn glance(&mut self, tracer: &mut Tracer<FileId>, now: Instant) {
        let hits = tracer.hits();
        let (prices, ladder) = (&self.prices, &self.ladder);
        self.account.glance(&hits, now, |pid, row| {
            (prices.call_ns(ladder.rung(pid, row), tracer.is_stepped(row)), !tracer.sampling().covers(pid, row))
        });
    }

    /// Goes up and down the ladder as the budget asks.
    fn climb(&mut self, tracer: &mut Tracer<FileId>, now: Instant) {
        let (loads, fixed) = self.loads(tracer);
        let tight = self.wish(&loads, &fixed, TIGHT);
        let roomy = self.wish(&loads, &fixed, ROOMY);
        let changes = self.ladder.step(now.saturating_duration_since(self.started), &tight, &roomy);
        for change in &changes {
            let fraction = if change.to >= Rung::Bursts { tight.burst_share } else { 1.0 };
            self.tell(change.pid, change.row, change.to, fraction, reason(change));
        }
        self.set_thresholds(tracer, &changes);
        let wanted = self.sampling(&loads, tracer);
        if wanted != *tracer.sampling() && !self.bursts.is_open() {
            self.change_sampling(tracer, wanted, tight.burst_share);
        }
    }

    /// What can be governed, and the share of each thread that cannot: some functions have to be seen every time.
    fn loads(&self, tracer: &Tracer<FileId>) -> (Vec<Load>, HashMap<(u32, u32), f64>) {
        let loads = self.account.loads(|row| self.prices.extra_ns(tracer.is_stepped(row)), is_spared);
        let (governed, other): (Vec<Load>, Vec<Load>) =
            loads.into_iter().partition(|load| !row(load.row.into()).is_some_and(|row| row.api.must_be_seen()));
        let mut fixed = self.account.fixed(self.target(TIGHT) * MOST_FIXED);
        for load in other {
            *fixed.entry((load.pid, load.tid)).or_default() +=
                load.rate * (self.prices.kept_ns() + load.extra_ns) / 1e9;
        }
        (governed, fixed)
    }

    fn wish(&self, loads: &[Load], fixed: &HashMap<(u32, u32), f64>, part: f64) -> Wish {
        let target = self.target(part);
        if let Some(rung) = self.options.pinned {
            let often = loads.iter().filter(|load| load.rate >= PINNED_FROM);
            let rungs = often.map(|load| ((load.pid, load.row), rung)).collect();
            return Wish { rungs, burst_share: self.bursts.share() };
        }
        let costs = UnitCosts {
            kept_ns: self.prices.kept_ns(),
            counted_ns: self.prices.recorded_ns(),
            agent_record_ns_per_cpu: self.own.record_ns_per_cpu(),
        };
        plan(loads, fixed, &costs, target)
    }

    /// The share of a thread that may be taken from it: the budget less what the tracer itself uses of the machine.
    fn target(&self, part: f64) -> f64 {
        let share = self.options.budget.unwrap_or(1.0) * part;
        (share - self.own.base_share()).max(share * LEAST_TARGET)
    }

    fn tell(&mut self, pid: u32, row: u16, rung: Rung, fraction: f64, reason: String) {
        let at_ns = clock::read(libc::CLOCK_MONOTONIC);
        self.items.push(Item::Rung(RungNews { at_ns, pid, row, rung, fraction, reason }));
    }

    /// From which duration on calls are kept. Threads come and go, so that this is said again and again.
    fn set_thresholds(&self, tracer: &mut Tracer<FileId>, changes: &[Change]) {
        for change in changes.iter().filter(|change| change.to != Rung::SlowOnly) {
            tracer.keep_from(change.pid, change.row, self.kept_from_ns(change.pid, change.row, change.to));
        }
        for ((pid, row), rung) in self.ladder.lowered().filter(|&(_, rung)| rung == Rung::SlowOnly) {
            if !self.stalls.is_raised(pid) {
                tracer.keep_from(pid, row, self.kept_from_ns(pid, row, rung));
            }
        }
    }

    fn kept_from_ns(&self, pid: u32, row: u16, rung: Rung) -> u64 {
        match rung {
            Rung::Everything | Rung::Bursts => self.keep_min_ns,
            Rung::SlowOnly => self.baselines.slow_ns(pid, row).max(self.keep_min_ns),
            Rung::Counters => u64::MAX,
        }
    }

    fn sampling(&self, loads: &[Load], tracer: &Tracer<FileId>) -> Sampling {
        let mut sampling = Sampling::default();
        for ((_, row), rung) in self.ladder.lowered() {
            match rung {
                Rung::Everything | Rung::SlowOnly => {}
                Rung::Bursts => drop(sampling.rows.insert(row, InBursts::Kept)),
                Rung::Counters => drop(sampling.rows.entry(row).or_insert(InBursts::Counted)),
            }
        }
        if tracer.can_exempt() {
            let others = loads.iter().filter(|load| sampling.rows.contains_key(&load.row));
            let calm = others.filter(|load| self.ladder.rung(load.pid, load.row) < Rung::Bursts);
            sampling.exempt = calm.map(|load| (load.pid, load.row)).collect();
            while sampling.exempt.len() > MOST_EXEMPT {
                sampling.exempt.pop_last();
            }
        }
        sampling
    }

    fn change_sampling(&mut self, tracer: &mut Tracer<FileId>, wanted: Sampling, share: f64) {
        let (moment_ns, deltas) = tracer.sample(wanted);
        let mut counted = Vec::with_capacity(deltas.len());
        for delta in deltas {
            let (pid, row) = (delta.task.pid, delta.row);
            if tracer.sampling().covers(pid, row) {
                let is_news = self.bursts.begin(pid, row, moment_ns);
                if is_news && self.ladder.rung(pid, row) < Rung::Bursts {
                    self.tell(pid, row, Rung::Bursts, share, "another process calls it too often".to_owned());
                }
                counted.push(Counted::exactly(delta));
            } else {
                counted.push(self.bursts.tail(delta, moment_ns));
            }
        }
        self.sampling_since_ns = moment_ns;
        self.bursts.begin_anew(Instant::now(), share);
        self.count(counted);
    }

    fn close_burst(&mut self, tracer: &mut Tracer<FileId>) {
        let (closed_ns, deltas) = tracer.close_burst();
        let window = self.bursts.window(closed_ns);
        self.tell_watched(closed_ns, window);
        let window = window.as_secs_f64().max(1e-6);
        let mut spent_ns: HashMap<TaskId, f64> = HashMap::new();
        let mut agent_ns = 0.0;
        for delta in &deltas {
            let (task, row) = (delta.task, delta.row);
            let rung = self.ladder.rung(task.pid, row);
            let price_ns = self.prices.call_ns(rung, tracer.is_stepped(row));
            *spent_ns.entry(task).or_default() += delta.count as f64 * price_ns;
            if rung == Rung::Bursts {
                agent_ns += delta.count as f64 * self.own.record_ns_per_cpu();
            }
            self.account.set_rate(task, row, delta.count as f64 / window);
            self.baselines.learn(delta);
        }
        let mut counted = Vec::with_capacity(deltas.len());
        for delta in deltas {
            // A thread that waits now and then makes up for it there.
            let slack_ns = self.account.slack_share(delta.task) * window * 1e9;
            let held_up_ns = (spent_ns.get(&delta.task).copied().unwrap_or(0.0) - slack_ns).max(0.0) as u64;
            counted.push(self.bursts.cycle(delta, closed_ns, self.sampling_since_ns, held_up_ns));
        }
        // Where all CPUs are busy, what records cost the tracer is taken from everybody.
        spent_ns.values_mut().for_each(|spent_ns| *spent_ns += agent_ns);
        let least = self.least_cycle(&spent_ns, tracer);
        self.bursts.closed(Instant::now(), least);
        self.count(counted);
    }

    /// Whoever reads the trace has to know when calls were seen that are seen in windows only.
    fn tell_watched(&mut self, closed_ns: u64, window: Duration) {
        let watched = Sample {
            at_ns: closed_ns.saturating_add_signed(Reading::now().offset_ns()),
            name: Sample::WATCHED.to_owned(),
            unit: "ns".to_owned(),
            device: None,
            value: window.as_nanos() as f64,
        };
        self.items.push(Item::Samples(vec![watched]));
    }

    /// How much time has to pass between two windows so that what one costs each thread is within its target.
    fn least_cycle(&self, spent_ns: &HashMap<TaskId, f64>, tracer: &Tracer<FileId>) -> Duration {
        let (loads, mut rest) = self.loads(tracer);
        for load in loads.iter().filter(|load| !tracer.sampling().covers(load.pid, load.row)) {
            let price_ns = self.prices.call_ns(self.ladder.rung(load.pid, load.row), tracer.is_stepped(load.row));
            *rest.entry((load.pid, load.tid)).or_default() += load.rate * price_ns / 1e9;
        }
        let target = self.target(TIGHT);
        let cycle_ns = |(task, spent_ns): (&TaskId, &f64)| {
            let taken = rest.get(&(task.pid, task.tid)).copied().unwrap_or(0.0) + self.account.skipped_share(*task);
            spent_ns / (target - taken).max(target * 0.1)
        };
        let longest_ns = spent_ns.iter().map(cycle_ns).fold(0.0, f64::max);
        Duration::from_nanos(longest_ns as u64)
    }

    fn count(&mut self, mut counted: Vec<Counted>) {
        counted.retain(|counted| counted.estimate > 0);
        if !counted.is_empty() {
            self.items.push(Item::Counts(counted));
        }
    }

    /// A bucket of time ends: what was counted in it, and what tracing took from each thread.
    pub fn second(&mut self, tracer: &mut Tracer<FileId>, counts: &[CountDelta], threads: &[ThreadSnapshot]) -> Second {
        let now = Instant::now();
        self.glance(tracer, now);
        for delta in counts {
            self.baselines.learn(delta);
        }
        let taken_ns = threads.iter().map(|snapshot| self.account.report(snapshot, &self.prices)).collect();
        let usage = self.own.second(now, tracer);
        self.prices = Prices::new(tracer.calibration, self.own.coldness(tracer));
        let worst = self.account.worst();
        let news = self.stacks.second(worst);
        if news.is_some() {
            self.allow_stacks(tracer);
        }
        Second { taken_ns, usage, worst, news }
    }

    /// Tells the kernel side how much walking stacks may take.
    pub fn allow_stacks(&self, tracer: &Tracer<FileId>) {
        if let Err(error) = tracer.allow_stacks(self.stacks.allowance()) {
            tracing::warn!("{error:#}");
        }
    }

    /// A kept call goes by: is it one to wonder about?
    pub fn look_at(&mut self, record: &Record) {
        let Record::Call(call) = record else { return };
        self.own.add_record();
        if self.baselines.is_stall(call) && !self.lowered_of(call.task.pid).is_empty() {
            let name = row(call.row.into()).map_or("a call", |row| row.api.name);
            let news = || format!("{name} took {} ms", call.duration_ns / 1_000_000);
            self.stalls.add(call.task.pid, Instant::now(), news);
        }
    }

    /// Brings back the last seconds of processes that had a stall, and looks closely for a moment.
    fn raise_after_stalls(&mut self, tracer: &mut Tracer<FileId>, now: Instant) {
        for (pid, news) in self.stalls.raise(now) {
            let after_ns = clock::read(libc::CLOCK_MONOTONIC).saturating_sub(LOOK_BACK_NS);
            let mut recorded = tracer.recorded(pid, after_ns);
            recorded.retain(|call| call.duration_ns >= self.keep_min_ns);
            recorded.sort_unstable_by_key(|call| call.end_ns);
            let reason = format!("{news}: {} earlier calls are kept, and all for a moment", recorded.len());
            self.items.extend(recorded.into_iter().map(|call| Item::Record(Record::Call(call))));
            for (row, _) in self.lowered_of(pid) {
                self.tell(pid, row, Rung::Everything, 1.0, reason.clone());
                tracer.keep_from(pid, row, self.keep_min_ns);
            }
            self.bursts.look_now(now);
        }
    }

    fn lower_after_stalls(&mut self, tracer: &mut Tracer<FileId>, now: Instant) {
        for pid in self.stalls.lower(now) {
            for (row, rung) in self.lowered_of(pid) {
                let fraction = if rung >= Rung::Bursts { self.bursts.share() } else { 1.0 };
                self.tell(pid, row, rung, fraction, "the moment after a stall is over".to_owned());
                tracer.keep_from(pid, row, self.kept_from_ns(pid, row, rung));
            }
        }
    }

    fn lowered_of(&self, pid: u32) -> Vec<(u16, Rung)> {
        self.ladder.lowered().filter(|((of, _), _)| *of == pid).map(|((_, row), rung)| (row, rung)).collect()
    }

    /// The last counts of a thread, or of the program it ran.
    pub fn owner_gone(&mut self, tracer: &mut Tracer<FileId>, owner: Owner, at_ns: u64) -> Vec<Counted> {
        let mut counted = Vec::new();
        for delta in tracer.close(owner) {
            let is_sampled = tracer.sampling().covers(delta.task.pid, delta.row);
            counted.push(match is_sampled {
                true => self.bursts.thread_gone(delta, at_ns, self.sampling_since_ns),
                false => Counted::exactly(delta),
            });
        }
        counted.retain(|counted| counted.estimate > 0);
        counted
    }

    /// A thread's last clocks: what was taken from it that has not been reported.
    pub fn thread_gone(&mut self, snapshot: &ThreadSnapshot) -> u64 {
        let taken_ns = self.account.report(snapshot, &self.prices);
        self.account.thread_gone(snapshot.owner.task);
        taken_ns
    }

    pub fn process_gone(&mut self, pid: u32) {
        self.ladder.forget_process(pid);
        self.bursts.process_gone(pid);
        self.baselines.process_gone(pid);
        self.stalls.process_gone(pid);
    }

    /// No probe is there for a while: what happened until this moment.
    pub fn suspend(&mut self, tracer: &mut Tracer<FileId>) -> Vec<Item> {
        let mut items = self.stop(tracer);
        items.extend(self.finish(tracer));
        items
    }

    /// The probes are back since this moment.
    pub fn resume(&mut self, moment_ns: u64) {
        let now = Instant::now();
        self.sampling_since_ns = moment_ns;
        self.bursts.resume(now, moment_ns);
        self.next_step = now + STEP;
        self.account.resume();
    }

    /// Closes the last window, before the probes are taken out.
    pub fn stop(&mut self, tracer: &mut Tracer<FileId>) -> Vec<Item> {
        if self.bursts.is_open() {
            self.close_burst(tracer);
        }
        std::mem::take(&mut self.items)
    }

    /// What happened between the last window and the end of the trace.
    pub fn finish(&mut self, tracer: &mut Tracer<FileId>) -> Vec<Item> {
        let (moment_ns, deltas) = tracer.close_burst();
        let tails = deltas.into_iter().map(|delta| self.bursts.tail(delta, moment_ns)).collect();
        self.count(tails);
        std::mem::take(&mut self.items)
    }
}

/// Launches and events come by the thousand and are alike. Of what waits, copies or allocates, each call may be the one
/// that explains a stall.
fn is_spared(row: u16) -> bool {
    let class = gpuwhy_apis::row(row.into()).map(|row| row.meaning().class);
    !matches!(class, None | Some(CallClass::Launch | CallClass::Event | CallClass::Memset | CallClass::Context))
}

fn reason(change: &Change) -> String {
    let why = if change.to > change.from { "it costs more than the budget allows" } else { "the budget allows it" };
    why.to_owned()
}
