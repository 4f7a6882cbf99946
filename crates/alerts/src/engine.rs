//! Who is above which limit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuwhy_model::Severity;
use serde::Serialize;

use crate::conditions::Condition;
use crate::file::{Alert, Rules};

/// So many processes, functions, GPUs and causes are watched at once, over all alerts. Later ones are counted.
pub const MOST_WATCHED: usize = 10_000;

/// A value of one process, function, GPU or finding.
#[derive(Clone, Debug)]
pub struct Measured<'a> {
    pub condition: &'static Condition,
    pub pid: Option<u32>,
    /// The name of the process.
    pub comm: &'a str,
    /// The function, the GPU or the cause.
    pub what: &'a str,
    pub value: f64,
    /// Of a finding.
    pub severity: Option<Severity>,
}

/// An alert fires, or is over.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    pub alert: String,
    pub state: State,
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    pub condition: &'static str,
    pub pid: Option<u32>,
    pub comm: String,
    pub what: String,
    pub value: f64,
    pub above: f64,
    /// One plain sentence.
    pub text: String,
    /// What is done about it.
    #[serde(skip)]
    pub actions: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Firing,
    Over,
}

/// What one alert watches: its number, and of whom.
type Watched = (usize, Option<u32>, String, String);

#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    above_since_ns: Option<u64>,
    below_since_ns: Option<u64>,
    is_firing: bool,
}

#[derive(Debug, Default)]
pub struct Engine {
    alerts: Vec<Alert>,
    standing: BTreeMap<Watched, Standing>,
    not_watched: u64,
}

impl Engine {
    pub fn new(rules: &Rules) -> Self {
        Self { alerts: rules.alerts.clone(), ..Self::default() }
    }

    /// What there was no room to watch.
    pub fn not_watched(&self) -> u64 {
        self.not_watched
    }

    /// Takes all that was measured of these conditions at a moment. What is not among it is as good as nothing.
    pub fn take(&mut self, at_ns: u64, conditions: &[&'static Condition], measured: &[Measured<'_>]) -> Vec<Event> {
        let mut events = Vec::new();
        let mut seen: BTreeSet<Watched> = BTreeSet::new();
        for one in measured {
            for number in 0..self.alerts.len() {
                if matches(&self.alerts[number], one) {
                    let watched = (number, one.pid, one.comm.to_owned(), one.what.to_owned());
                    events.extend(self.stand(&watched, one.value, at_ns));
                    seen.insert(watched);
                }
            }
        }
        let is_told = |watched: &&Watched| conditions.contains(&self.alerts[watched.0].condition);
        let gone: Vec<Watched> =
            self.standing.keys().filter(is_told).filter(|watched| !seen.contains(*watched)).cloned().collect();
        for watched in gone {
            events.extend(self.stand(&watched, 0.0, at_ns));
        }
        events
    }

    fn stand(&mut self, watched: &Watched, value: f64, at_ns: u64) -> Option<Event> {
        let alert = &self.alerts[watched.0];
        let mut now = self.standing.get(watched).copied().unwrap_or_default();
        let since = |since_ns: &mut Option<u64>| at_ns.saturating_sub(*since_ns.get_or_insert(at_ns));
        let mut turned = None;
        if value > alert.above {
            now.below_since_ns = None;
            if since(&mut now.above_since_ns) >= alert.lasting.as_nanos() as u64 && !now.is_firing {
                turned = Some(State::Firing);
            }
        } else {
            now.above_since_ns = None;
            // With a limit of nothing, nothing is less than the limit.
            if value < alert.until_below || value == 0.0 {
                let is_over = since(&mut now.below_since_ns) >= alert.until_after.as_nanos() as u64;
                turned = (now.is_firing && is_over).then_some(State::Over);
            } else {
                now.below_since_ns = None;
            }
        }
        now.is_firing = turned.map_or(now.is_firing, |state| state == State::Firing);
        let event = turned.map(|state| told(alert, watched, state, value, at_ns));
        // What cannot be remembered would fire again and again.
        let is_kept = self.keep(watched, now);
        event.filter(|_| is_kept)
    }

    /// Who is neither above a limit nor was is not worth remembering.
    fn keep(&mut self, watched: &Watched, now: Standing) -> bool {
        if !now.is_firing && now.above_since_ns.is_none() {
            self.standing.remove(watched);
        } else if self.standing.contains_key(watched) || self.standing.len() < MOST_WATCHED {
            self.standing.insert(watched.clone(), now);
        } else {
            self.not_watched += 1;
            return false;
        }
        true
    }
}

fn matches(alert: &Alert, measured: &Measured<'_>) -> bool {
    alert.condition == measured.condition
        && alert.process.as_deref().is_none_or(|pattern| is_like(measured.comm, pattern))
        && alert.what.as_deref().is_none_or(|pattern| is_like(measured.what, pattern))
        && measured.severity.is_none_or(|severity| severity >= alert.severity)
}

fn is_like(name: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(name == pattern, |start| name.starts_with(start))
}

fn told(alert: &Alert, watched: &Watched, state: State, value: f64, at_ns: u64) -> Event {
    let (_, pid, comm, what) = watched;
    let condition = alert.condition;
    let who = match (pid, what.as_str()) {
        (Some(pid), "") => format!("{comm} ({pid})"),
        (Some(pid), what) => format!("{what} of {comm} ({pid})"),
        (None, what) => what.to_owned(),
    };
    let said = condition.says.replace("{}", &condition.unit.write(value));
    let limit = condition.unit.write(alert.above);
    let text = match state {
        State::Firing => format!("{}: {who} {said}, more than {limit}", alert.name),
        State::Over => format!("{}: over, {who} {said}", alert.name),
    };
    Event {
        alert: alert.name.clone(),
        state,
        at_ns,
        condition: condition.name,
        pid: *pid,
        comm: comm.clone(),
        what: what.clone(),
        value,
        above: alert.above,
        text,
        actions: alert.actions.clone(),
    }
}

/// One that several measure for. Each event is told once.
#[derive(Clone)]
pub struct Shared {
    engine: Arc<Mutex<Engine>>,
    tell: Arc<dyn Fn(Event) + Send + Sync>,
}

impl Shared {
    pub fn new(rules: &Rules, tell: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self { engine: Arc::new(Mutex::new(Engine::new(rules))), tell: Arc::new(tell) }
    }

    pub fn take(&self, at_ns: u64, conditions: &[&'static Condition], measured: &[Measured<'_>]) {
        let events = self.lock().take(at_ns, conditions, measured);
        events.into_iter().for_each(|event| (self.tell)(event));
    }

    pub fn not_watched(&self) -> u64 {
        self.lock().not_watched()
    }

    /// What is known is whole also when somebody panicked beside it.
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Shared").field(&self.engine).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::{FINDING, OFF_CPU};

    const S: u64 = 1_000_000_000;

    fn engine(rest: &str) -> Engine {
        let text = format!("[[alert]]\nname = \"stalls\"\nwhen = \"off-cpu\"\nabove = \"50%\"\n{rest}");
        Engine::new(&Rules::parse(&text).unwrap())
    }

    fn off_cpu(pid: u32, value: f64) -> Measured<'static> {
        Measured { condition: &OFF_CPU, pid: Some(pid), comm: "python", what: "", value, severity: None }
    }

    /// What happens when this is measured of a process, second by second.
    fn run(engine: &mut Engine, values: &[f64]) -> Vec<(u64, State)> {
        let mut told = Vec::new();
        for (second, &value) in (1..).zip(values) {
            let events = engine.take(second * S, &[&OFF_CPU], &[off_cpu(7, value)]);
            told.extend(events.iter().map(|event| (second, event.state)));
        }
        told
    }

    #[test]
    fn the_first_second_above_a_limit_fires_once_and_it_is_over_after_a_while_below() {
        let values = [0.2, 0.6, 0.7, 0.2, 0.2, 0.2];
        assert_eq!(run(&mut engine("until_after = \"2s\""), &values), [(2, State::Firing), (6, State::Over)]);
    }

    #[test]
    fn what_has_to_last_does_not_fire_before_and_what_wavers_is_not_over() {
        let lasting = "for = \"2s\"\nuntil_after = \"0s\"";
        assert_eq!(run(&mut engine(lasting), &[0.6, 0.6, 0.4, 0.6, 0.6, 0.6]), [(6, State::Firing)]);
        let values = [0.6, 0.48, 0.6, 0.46, 0.44];
        assert_eq!(run(&mut engine("until_after = \"0s\""), &values), [(1, State::Firing), (5, State::Over)]);
    }

    #[test]
    fn what_is_no_longer_measured_is_over_and_forgotten() {
        let mut engine = engine("until_after = \"1s\"");
        run(&mut engine, &[0.9]);
        assert_eq!(engine.take(2 * S, &[&OFF_CPU], &[]), []);
        assert_eq!(engine.take(3 * S, &[&FINDING], &[]), [], "that is somebody else's");
        let over = engine.take(4 * S, &[&OFF_CPU], &[]);
        assert_eq!(over.iter().map(|event| event.state).collect::<Vec<_>>(), [State::Over]);
        assert!(engine.standing.is_empty());
    }

    #[test]
    fn an_alert_is_about_those_whom_it_names() {
        let mut engine = engine("process = \"py*\"");
        let told = engine.take(S, &[&OFF_CPU], &[off_cpu(7, 0.9), Measured { comm: "java", ..off_cpu(8, 0.9) }]);
        assert_eq!(told.iter().map(|event| event.pid).collect::<Vec<_>>(), [Some(7)]);
        assert_eq!(told[0].text, "stalls: python (7) was off the CPU for 90.00 % of a second, more than 50.00 %");
    }

    #[test]
    fn findings_that_are_not_grave_enough_do_not_fire() {
        let mut engine = Engine::new(&Rules::parse("[[alert]]\nname = \"a\"\nwhen = \"finding\"\n").unwrap());
        let finding =
            |severity| Measured { condition: &FINDING, what: "lock-wait", severity: Some(severity), ..off_cpu(7, 0.2) };
        assert_eq!(engine.take(S, &[&FINDING], &[finding(Severity::Medium)]), []);
        let told = engine.take(2 * S, &[&FINDING], &[finding(Severity::High)]);
        assert_eq!(told[0].text, "a: lock-wait of python (7) lost 20.00 % of the last seconds, more than 0.00 %");
    }

    #[test]
    fn no_more_are_watched_than_there_is_room_for() {
        let mut engine = engine("");
        let many: Vec<_> = (0..MOST_WATCHED as u32 + 50).map(|pid| off_cpu(pid, 0.9)).collect();
        assert_eq!(engine.take(S, &[&OFF_CPU], &many).len(), MOST_WATCHED);
        assert_eq!((engine.standing.len(), engine.not_watched()), (MOST_WATCHED, 50));
    }
}
