//! The thread that draws and reads keys.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gpuwhy_agent::Signals;
use ratatui_crossterm::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::SIGTSTP;

use super::board::Board;
use super::look::Look;
use super::state::{Effect, State};
use super::terminal::{Screen, is_in_foreground};
use super::{keys, register, view};
use crate::print;

/// How long news may wait.
const TURN: Duration = Duration::from_millis(100);

/// What others want of this thread, and it of them.
#[derive(Clone)]
pub struct Flags {
    stop: Arc<AtomicBool>,
    /// To the tracer: take the probes out and stop the process. Only after the terminal was given back.
    suspend: Arc<AtomicBool>,
    /// From outside: somebody sent the signal of Ctrl-Z.
    pub suspend_wanted: Arc<AtomicBool>,
    pub continued: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Flags {
    pub fn new(signals: &Signals) -> Self {
        Self {
            stop: Arc::clone(&signals.stop),
            suspend: Arc::clone(&signals.suspend),
            suspend_wanted: Arc::default(),
            continued: Arc::default(),
            ended: Arc::default(),
        }
    }

    /// The trace is over.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

pub struct Drawing {
    board: Arc<Board>,
    flags: Flags,
    state: State,
    look: Look,
    /// Whether the trace is of no use without the view.
    is_all: bool,
    screen: Option<Screen>,
    /// The process is about to be stopped; the screen is taken again when it goes on.
    is_away: bool,
    is_stale: bool,
}

impl Drawing {
    pub fn new(board: Arc<Board>, flags: Flags, state: State, look: Look, is_all: bool) -> Self {
        Self { board, flags, state, look, is_all, screen: None, is_away: false, is_stale: true }
    }

    /// A terminal that fails ends the view, and the trace only where it is for the view alone.
    pub fn run(mut self) {
        let result = self.draw_until_ended();
        self.screen = None;
        // From here on there is nothing to put in order before a stop.
        let _ = register(SIGTSTP, &self.flags.suspend);
        if let Err(error) = result {
            print::note(&format!("the view ends here: {error}"));
            self.flags.stop.fetch_or(self.is_all, Ordering::Relaxed);
        }
    }

    fn draw_until_ended(&mut self) -> io::Result<()> {
        while !self.flags.has_ended() {
            if self.flags.suspend_wanted.swap(false, Ordering::Relaxed) {
                self.go_away();
            }
            if self.flags.continued.swap(false, Ordering::Relaxed) {
                self.come_back()?;
            }
            if self.has_screen()? {
                self.turn()?;
            } else {
                std::thread::park_timeout(TURN);
            }
        }
        Ok(())
    }

    /// Takes the screen when it may be had.
    fn has_screen(&mut self) -> io::Result<bool> {
        if self.screen.is_none() && !self.is_away && self.board.has_begun() && is_in_foreground() {
            self.screen = Some(Screen::enter()?);
            self.is_stale = true;
        }
        Ok(self.screen.is_some())
    }

    fn turn(&mut self) -> io::Result<()> {
        self.is_stale |= self.state.take(self.board.news());
        let is_stopping = self.flags.stop.load(Ordering::Relaxed);
        self.is_stale |= is_stopping != self.state.is_stopping;
        self.state.is_stopping = is_stopping;
        let Some(screen) = &mut self.screen else { return Ok(()) };
        if std::mem::take(&mut self.is_stale) || screen.has_new_size()? {
            screen.draw(|area, buffer| view::screen(&self.state, self.look, area, buffer))?;
        }
        if screen.wait_for_keys(TURN)? {
            self.take_events()?;
        }
        Ok(())
    }

    /// All that have come: keys that are held down must not pile up.
    fn take_events(&mut self) -> io::Result<()> {
        while self.screen.is_some() && event::poll(Duration::ZERO)? {
            let event = event::read()?;
            self.is_stale = true;
            if let Event::Key(key) = event
                && key.kind != KeyEventKind::Release
                && let Some(wish) = keys::wish(key)
                && let Some(effect) = self.state.wish(wish)
            {
                self.act(effect)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, effect: Effect) -> io::Result<()> {
        match effect {
            Effect::Quit => self.flags.stop.store(true, Ordering::Relaxed),
            Effect::Suspend => self.go_away(),
            Effect::Redraw => self.screen.as_mut().map_or(Ok(()), Screen::clear)?,
        }
        Ok(())
    }

    /// First the terminal, then the process.
    fn go_away(&mut self) {
        self.screen = None;
        self.is_away = true;
        self.flags.continued.store(false, Ordering::Relaxed);
        self.flags.suspend.store(true, Ordering::Relaxed);
    }

    fn come_back(&mut self) -> io::Result<()> {
        self.is_away = false;
        self.is_stale = true;
        self.screen.as_mut().map_or(Ok(()), Screen::clear)
    }
}
