//! The live view of a trace: threads that feed a GPU, calls, findings as they appear.
//!
//! `state` has what is shown and no widgets, `view` draws it and keeps nothing. The tracing threads leave news on the
//! `board` and never wait; one thread draws and reads keys (`drawing`), one asks for findings (`asking`). Where there
//! is no terminal to draw on, `plain` prints the same view as text.

mod asking;
mod board;
mod drawing;
mod keys;
mod look;
mod plain;
mod state;
mod terminal;
mod view;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gpuwhy_agent::{Signals, Watch};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};

use crate::print;
pub use asking::{Asking, Pace};
use board::{Board, Pinning};
use drawing::{Drawing, Flags};
use look::Look;
pub use plain::Plain;
use state::State;
pub use terminal::is_there as has_terminal;

/// What is looked at.
pub struct About {
    pub title: String,
    pub file: PathBuf,
    pub budget: Option<f64>,
    /// Whether the file is of use without the view.
    pub is_kept: bool,
}

impl About {
    fn state(&self) -> State {
        State::new(self.title.clone(), self.budget)
    }
}

/// The view on the whole terminal, until it is dropped.
pub struct Viewing {
    board: Arc<Board>,
    asking: Option<Asking>,
    flags: Flags,
    drawing: Option<JoinHandle<()>>,
}

/// A terminal that takes nothing any more cannot be given back either.
const PATIENCE: Duration = Duration::from_secs(2);

impl Viewing {
    /// Takes the screen as soon as the trace has something to say: what goes wrong before that stays readable.
    pub fn start(about: &About, signals: &Signals) -> Result<Self> {
        let flags = Flags::new(signals);
        stop_on_signals(signals, &[SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
        register(SIGTSTP, &flags.suspend_wanted)?;
        register(SIGCONT, &flags.continued)?;
        let board = Arc::new(Board::default());
        let asking = board.ask(about.file.clone());
        let look = Look::from_variables(|name| std::env::var(name).ok());
        let drawing = Drawing::new(Arc::clone(&board), flags.clone(), about.state(), look, !about.is_kept);
        let drawing = std::thread::spawn(move || drawing.run());
        Ok(Self { board, asking: Some(asking), flags, drawing: Some(drawing) })
    }

    pub fn watch(&self) -> Box<dyn Watch> {
        Box::new(Pinning(Arc::clone(&self.board)))
    }

    fn give_back(&mut self) {
        self.flags.end();
        let deadline = Instant::now() + PATIENCE;
        if let Some(drawing) = self.drawing.take() {
            drawing.thread().unpark();
            while !drawing.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            if !drawing.is_finished() {
                terminal::restore_mode();
            }
        }
    }
}

impl Drop for Viewing {
    /// Gives the terminal back, then says what was said meanwhile.
    fn drop(&mut self) {
        self.asking.iter().for_each(Asking::cancel);
        self.give_back();
        self.asking = None;
        let (notes, dropped) = self.board.take_notes();
        notes.iter().for_each(|note| print::note(note));
        if dropped > 0 {
            print::note(&format!("and {dropped} more"));
        }
    }
}

/// A trace ends in order when it gets one of these.
pub fn stop_on_signals(signals: &Signals, which: &[i32]) -> Result<()> {
    which.iter().try_for_each(|&signal| register(signal, &signals.stop))
}

pub fn register(signal: i32, flag: &Arc<AtomicBool>) -> Result<()> {
    signal_hook::flag::register(signal, Arc::clone(flag)).context("handle signals").map(drop)
}
