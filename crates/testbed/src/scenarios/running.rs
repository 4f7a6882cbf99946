//! A scenario that was started: the victim, its peers, and how they end.

use super::truth::{Blame, ScenarioTruth, Testimony};
use crate::child::LineChild;
use anyhow::{Result, bail};
use std::time::Duration;

/// How long a peer may take to end when it is asked to. A control group cannot go before its members have.
const PEER_LIMIT: Duration = Duration::from_secs(5);

/// A started scenario. All its processes are ended when this is dropped, and by themselves when this process dies.
#[derive(Debug)]
pub struct RunningScenario {
    // Dropped in this order.
    victim: LineChild,
    peers: Vec<Peer>,
    children: Vec<u32>,
    cause: Option<&'static str>,
    blame: Blame,
    has_gone: bool,
}

impl RunningScenario {
    pub(super) fn new(
        victim: LineChild,
        children: Vec<u32>,
        peers: Vec<Peer>,
        cause: Option<&'static str>,
        blame: Blame,
    ) -> Self {
        Self { victim, peers, children, cause, blame, has_gone: false }
    }

    /// The processes of the job: the one that uses CUDA, and those that it has forked.
    pub fn pids(&self) -> Vec<u32> {
        std::iter::once(self.victim.pid()).chain(self.children.iter().copied()).collect()
    }

    /// Lets everyone begin, the victim last.
    pub fn go(&mut self) -> Result<()> {
        self.has_gone = true;
        for peer in &mut self.peers {
            peer.child.send("go")?;
        }
        self.victim.send("go")
    }

    /// Lets it begin if it has not, waits for the end, and leaves nothing behind.
    pub fn finish(mut self) -> Result<ScenarioTruth> {
        if !self.has_gone {
            self.go()?;
        }
        let mut testimony = Testimony::default();
        while let Some(line) = self.victim.next_line()? {
            testimony.add(&line)?;
        }
        let status = self.victim.wait_exit()?;
        if !status.success() {
            bail!("the victim failed: {status}");
        }
        let suspects = self.peers.iter().filter(|peer| peer.is_suspect).map(|peer| peer.child.pid());
        let culprit = self.blame.culprit(self.victim.pid(), &suspects.collect::<Vec<_>>(), &testimony);
        testimony.into_truth(self.cause, self.victim.pid(), culprit)
    }
}

/// A process next to the victim.
#[derive(Debug)]
pub(super) struct Peer {
    child: LineChild,
    /// It may be to blame.
    is_suspect: bool,
}

impl Peer {
    pub(super) fn new(child: LineChild, is_suspect: bool) -> Self {
        Self { child, is_suspect }
    }
}

impl Drop for Peer {
    /// Asks it to end, so that it can clean up. One that does not is killed with its `LineChild`.
    fn drop(&mut self) {
        self.child.close_stdin();
        self.child.shorten_limit(PEER_LIMIT);
        let _ = self.child.wait_exit();
    }
}
