//! Putting a scenario together: peers that the victim needs, the victim, peers that need the victim.

use super::Setup;
use super::running::{Peer, RunningScenario};
use super::truth::Blame;
use crate::Testbed;
use crate::child::LineChild;
use anyhow::{Context, Result};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// On top of a scenario's own duration: for starting, and for the last step.
const SLACK: Duration = Duration::from_secs(60);

/// A scenario before its victim is started. The victim is the C program, and is to blame, unless something else is said.
pub(super) struct Stage<'a> {
    testbed: &'a Testbed,
    setup: &'a Setup,
    fault: &'static str,
    is_python: bool,
    arguments: Vec<String>,
    blame: Blame,
    first: Vec<Peer>,
    later: Vec<LaterPeer>,
}

/// A peer that is started when the victim is ready.
struct LaterPeer {
    role: &'static str,
    arguments: Vec<String>,
    /// Needs the port on which the victim listens.
    wants_port: bool,
}

/// Peers that make scenarios possible and cannot be to blame.
const BYSTANDERS: &[&str] = &["background", "cgroup"];

impl<'a> Stage<'a> {
    pub(super) fn new(testbed: &'a Testbed, setup: &'a Setup, fault: &'static str) -> Self {
        let (arguments, first, later) = (Vec::new(), Vec::new(), Vec::new());
        Self { testbed, setup, fault, is_python: false, arguments, blame: Blame::Victim, first, later }
    }

    /// The Python program is the victim.
    pub(super) fn python(mut self) -> Self {
        self.is_python = true;
        self
    }

    /// The victim's fault has another name than the scenario.
    pub(super) fn fault(mut self, name: &'static str) -> Self {
        self.fault = name;
        self
    }

    pub(super) fn blame(mut self, blame: Blame) -> Self {
        self.blame = blame;
        self
    }

    /// Peers that the healthy twin does not have.
    pub(super) fn hogs(mut self, role: &'static str, count: usize) -> Self {
        for _ in 0..if self.setup.healthy { 0 } else { count } {
            self.later.push(LaterPeer { role, arguments: Vec::new(), wants_port: false });
        }
        self
    }

    /// A peer whose batches the victim waits for.
    pub(super) fn producer(mut self, role: &'static str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("batches-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let fifo = self.testbed.dir().join(name).to_string_lossy().into_owned();
        let arguments = vec!["--fifo".to_owned(), fifo];
        self.arguments.extend(arguments.clone());
        self.later.push(LaterPeer { role, arguments, wants_port: false });
        self
    }

    /// A peer that asks the victim.
    pub(super) fn client(mut self, role: &'static str) -> Self {
        self.later.push(LaterPeer { role, arguments: Vec::new(), wants_port: true });
        self
    }

    /// A peer that the victim asks.
    pub(super) fn server(mut self, role: &'static str) -> Result<Self> {
        let (peer, words) = self.start_peer(role, &[])?;
        self.first.push(peer);
        self.arguments.extend(["--port".to_owned(), value_of(&words, "port")?]);
        Ok(self)
    }

    /// A control group for the victim, with this limit if it is not the healthy twin.
    pub(super) fn cgroup(self, controller: &str, limit: &str) -> Result<Self> {
        let is_limited = !self.setup.healthy;
        self.any_cgroup(controller, is_limited.then_some(limit))
    }

    /// A control group with a limit that the healthy twin keeps to.
    pub(super) fn limited_cgroup(self, controller: &str, limit: &str) -> Result<Self> {
        self.any_cgroup(controller, Some(limit))
    }

    fn any_cgroup(mut self, controller: &str, limit: Option<&str>) -> Result<Self> {
        let mut arguments = vec!["--controller".to_owned(), controller.to_owned()];
        arguments.extend(limit.into_iter().flat_map(|limit| ["--limit".to_owned(), limit.to_owned()]));
        let (peer, words) = self.start_peer("cgroup", &arguments)?;
        self.first.push(peer);
        self.arguments.extend(["--cgroup".to_owned(), value_of(&words, "folder")?]);
        Ok(self)
    }

    pub(super) fn seed(&self) -> u64 {
        self.setup.seed
    }

    /// Starts the victim, and everyone who comes after it.
    pub(super) fn start(mut self, cause: Option<&'static str>) -> Result<RunningScenario> {
        let mut victim = LineChild::spawn(self.victim_command(), self.limit())?;
        let words = victim.ready_words().context("the victim is not ready")?;
        let mut peers = Vec::new();
        for later in &self.later {
            peers.push(self.start_later(later, &words)?);
        }
        if self.setup.background {
            peers.push(self.start_peer("background", &[])?.0);
        }
        // The control group is the last to go.
        peers.append(&mut self.first);
        let (cause, blame) = if self.setup.healthy { (None, Blame::Nobody) } else { (cause, self.blame) };
        Ok(RunningScenario::new(victim, children_in(&words)?, peers, cause, blame))
    }

    fn victim_command(&self) -> Command {
        let mut command = Command::new(self.testbed.scenario());
        if self.is_python {
            command = Command::new("python3");
            command.arg(self.testbed.scenario_py()).arg("--driver").arg(self.testbed.libcuda());
        }
        command.env("LD_LIBRARY_PATH", self.testbed.dir());
        command.args(["--fault", self.fault, "--threads", &self.setup.threads.to_string()]);
        command.args(["--duration-ms", &self.setup.duration.as_millis().to_string()]);
        self.add_common(&mut command);
        command.args(&self.arguments);
        command
    }

    fn start_later(&self, peer: &LaterPeer, words_of_victim: &[String]) -> Result<Peer> {
        let mut arguments = peer.arguments.clone();
        if peer.wants_port {
            arguments.extend(["--port".to_owned(), value_of(words_of_victim, "port")?]);
        }
        Ok(self.start_peer(peer.role, &arguments)?.0)
    }

    /// Returns what the peer says when it is ready, too.
    fn start_peer(&self, role: &str, arguments: &[String]) -> Result<(Peer, Vec<String>)> {
        let mut command = Command::new(self.testbed.scenario_peer());
        command.args(["--role", role]).args(arguments);
        self.add_common(&mut command);
        let mut child = LineChild::spawn(command, self.limit())?;
        let words = child.ready_words().with_context(|| format!("the peer {role} is not ready"))?;
        Ok((Peer::new(child, !BYSTANDERS.contains(&role)), words))
    }

    /// Victim and peers draw the same numbers from the seed.
    fn add_common(&self, command: &mut Command) {
        command.args(["--seed", &self.setup.seed.to_string()]);
        if self.setup.healthy {
            command.arg("--healthy");
        }
    }

    fn limit(&self) -> Duration {
        self.setup.duration + SLACK
    }
}

/// A stage for the victim alone.
pub(super) fn alone(stage: Stage<'_>) -> Result<Stage<'_>> {
    Ok(stage)
}

/// The value in `word=value`.
fn value_of(words: &[String], word: &str) -> Result<String> {
    let mut values = words.iter().filter_map(|pair| pair.strip_prefix(word)?.strip_prefix('='));
    values.next().map(str::to_owned).with_context(|| format!("the program did not name its {word}"))
}

/// The processes that the victim has forked already.
fn children_in(words: &[String]) -> Result<Vec<u32>> {
    let pids = words.iter().filter_map(|pair| pair.strip_prefix("child="));
    pids.map(|pid| pid.parse().with_context(|| format!("read the child's pid {pid:?}"))).collect()
}
