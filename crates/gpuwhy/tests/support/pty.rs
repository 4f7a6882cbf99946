//! A program on a terminal of its own, whose keys a test presses and whose output it reads; killed when dropped.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::wait_until;

pub struct OnTerminal {
    child: Child,
    /// The side that a person sits at.
    master: Option<File>,
    reader: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    /// Kept open, so that the mode of the terminal can be read after the end.
    terminal: OwnedFd,
    output: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    pub fn start(mut command: Command, columns: u16, lines: u16) -> Self {
        let (master, terminal) = open(columns, lines);
        let same = || terminal.try_clone().unwrap();
        command.stdin(same()).stdout(same()).stderr(same()).env("TERM", "xterm");
        // SAFETY: both are plain system calls, which a child may make after a fork.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            })
        };
        let child = command.spawn().unwrap();
        let output = Arc::new(Mutex::new(Vec::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let side = master.try_clone().unwrap();
        let (collected, over) = (Arc::clone(&output), Arc::clone(&is_over));
        let reader = Some(std::thread::spawn(move || read(side, &collected, &over)));
        Self { child, master: Some(master), reader, is_over, terminal, output }
    }

    /// As when a connection breaks.
    pub fn hang_up(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.reader.take().unwrap().join().unwrap();
        self.master = None;
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn press(&mut self, keys: &str) {
        self.master.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Everything that was written so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// How many bytes were written so far. The last ones may be the first part of a character.
    pub fn written(&self) -> usize {
        self.output.lock().unwrap().len()
    }

    /// Waits until these words were written after so many bytes.
    pub fn wait_after(&self, start: usize, words: &str) -> &Self {
        wait_until(&format!("{words:?} on the terminal"), || {
            let output = self.output.lock().unwrap();
            output[start..].windows(words.len()).any(|written| written == words.as_bytes()).then_some(())
        });
        self
    }

    pub fn wait_for(&self, words: &str) -> &Self {
        self.wait_after(0, words)
    }

    pub fn resize(&self, columns: u16, lines: u16) {
        let size = size(columns, lines);
        // SAFETY: the size lives through the call, and the descriptor is a terminal.
        unsafe { libc::ioctl(self.master.as_ref().unwrap().as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for, so its pid is still its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    pub fn wait_exit(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_until("the end", || child.try_wait().unwrap())
    }

    /// Whether lines are edited, keys are echoed and Ctrl-C is a signal, as a shell wants it.
    pub fn is_in_order(&self) -> bool {
        // SAFETY: all zeros are a valid termios, and the descriptor is a terminal.
        let mode = unsafe {
            let mut mode: libc::termios = std::mem::zeroed();
            assert_eq!(libc::tcgetattr(self.terminal.as_raw_fd(), &raw mut mode), 0);
            mode
        };
        let wanted = libc::ICANON | libc::ECHO | libc::ISIG;
        mode.c_lflag & wanted == wanted && mode.c_oflag & libc::OPOST != 0
    }
}

/// Looks up now and then whether anybody still wants to read.
fn read(mut side: File, collected: &Mutex<Vec<u8>>, is_over: &AtomicBool) {
    let mut bytes = [0; 4096];
    while !is_over.load(Ordering::Relaxed) {
        let mut wanted = libc::pollfd { fd: side.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the one entry lives through the call.
        if unsafe { libc::poll(&raw mut wanted, 1, 20) } > 0 {
            let Ok(length @ 1..) = side.read(&mut bytes) else { return };
            collected.lock().unwrap().extend(&bytes[..length]);
        }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open(columns: u16, lines: u16) -> (File, OwnedFd) {
    let (mut master, mut terminal) = (0, 0);
    let size = size(columns, lines);
    // SAFETY: the pointers live through the call; null means no name and the usual mode.
    let result = unsafe {
        libc::openpty(&raw mut master, &raw mut terminal, std::ptr::null_mut(), std::ptr::null(), &raw const size)
    };
    assert_eq!(result, 0);
    // SAFETY: both were just opened, and nobody else has them. Children must not inherit them by accident.
    unsafe {
        libc::fcntl(master, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(terminal, libc::F_SETFD, libc::FD_CLOEXEC);
        (File::from_raw_fd(master), OwnedFd::from_raw_fd(terminal))
    }
}

fn size(columns: u16, lines: u16) -> libc::winsize {
    libc::winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}
