//! The terminal while it is ours. It is given back on every way out: the end, a panic of any thread, a stop.

use std::fs::File;
use std::io::{self, IsTerminal, Stdout};
use std::os::fd::AsRawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Rect, Size};
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// Whether the terminal is in our mode.
static IS_OURS: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// Whether there is a terminal that can be drawn on and read keys from.
pub fn is_there() -> bool {
    let term = std::env::var("TERM").unwrap_or_default();
    let has_keys = || io::stdin().is_terminal() || File::open("/dev/tty").is_ok();
    io::stdout().is_terminal() && !matches!(term.as_str(), "" | "dumb") && has_keys()
}

/// Whether this process may draw: a shell's job in the background may not, and would be stopped for trying. A terminal
/// that no shell controls is everybody's.
pub fn is_in_foreground() -> bool {
    // SAFETY: both take numbers only.
    let (foreground, own) = unsafe { (libc::tcgetpgrp(libc::STDOUT_FILENO), libc::getpgrp()) };
    foreground == own || foreground == -1
}

pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    drawn_size: Size,
    /// Where keys come from when standard input is not a terminal.
    keys: Option<File>,
}

impl Screen {
    pub fn enter() -> io::Result<Self> {
        HOOK.call_once(restore_on_panic);
        IS_OURS.store(true, Ordering::SeqCst);
        let keys = if io::stdin().is_terminal() { None } else { Some(File::open("/dev/tty")?) };
        let terminal = enable_raw_mode()
            .and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Hide))
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())))
            .inspect_err(|_| restore())?;
        let mut screen = Self { terminal, drawn_size: Size::ZERO, keys };
        screen.clear()?;
        Ok(screen)
    }

    pub fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) -> io::Result<()> {
        self.drawn_size = self.terminal.draw(|frame| draw(frame.area(), frame.buffer_mut()))?.area.as_size();
        Ok(())
    }

    /// Whether it is larger or smaller than what was drawn.
    pub fn has_new_size(&self) -> io::Result<bool> {
        Ok(self.terminal.size()? != self.drawn_size)
    }

    /// Waits for keys. A terminal that is gone is an error; those who only read would read nothing for ever.
    pub fn wait_for_keys(&self, most: Duration) -> io::Result<bool> {
        let fd = self.keys.as_ref().map_or(libc::STDIN_FILENO, AsRawFd::as_raw_fd);
        let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: the one entry lives through the call.
        unsafe { libc::poll(&raw mut wanted, 1, most.as_millis() as i32) };
        if wanted.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0 {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the terminal is gone"));
        }
        Ok(wanted.revents & libc::POLLIN != 0)
    }

    /// Everything again, whatever else has written to it.
    ///
    /// `Terminal::clear` would ask the terminal where its cursor is, and wait for an answer that may never come.
    pub fn clear(&mut self) -> io::Result<()> {
        let area = self.terminal.size()?.into();
        self.terminal.resize(area)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back. Does nothing where it has been.
pub fn restore() {
    if IS_OURS.swap(false, Ordering::SeqCst) {
        // There is nobody left to tell when it fails.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// The least that is needed, for a terminal that takes no more output.
pub fn restore_mode() {
    if IS_OURS.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
    }
}

/// What a panic says is to be read after it.
fn restore_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        before(panic);
    }));
}
