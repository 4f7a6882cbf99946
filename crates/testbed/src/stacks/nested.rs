//! Programs that make the same driver call over and over from a stack of a given shape, to measure what taking it costs.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Witnesses;
use crate::child::LineChild;

/// What calls the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nested {
    /// So many native frames without frame pointers. Before each call so much memory is gone through, to make the CPU's
    /// caches forget.
    C { frames: u32, kilobytes: u32 },
    /// The same with frame pointers.
    CFramePointers { frames: u32, kilobytes: u32 },
    /// So many frames of Python, on a few native ones of the interpreter.
    Python { frames: u32 },
}

/// Frames that the C programs have besides the nested functions: the innermost one, `main`, and three before it.
const OTHER_FRAMES: u32 = 5;
/// What there is to lose: a program that hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program that was started. It is killed when this is dropped.
#[derive(Debug)]
pub struct NestedCalls {
    child: LineChild,
}

impl NestedCalls {
    /// Starts a program that calls nothing before [`NestedCalls::run`], and then for so long.
    pub fn start(witnesses: &Witnesses, nested: Nested, duration: Duration) -> Result<Self> {
        let mut child = LineChild::spawn(command(witnesses, nested, duration)?, duration + PATIENCE)?;
        child.wait_ready().with_context(|| format!("{nested:?} is not ready"))?;
        Ok(Self { child })
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets it make its calls, and waits for its end.
    pub fn run(mut self) -> Result<()> {
        self.child.send("go")?;
        let status = self.child.wait_exit()?;
        ensure!(status.success(), "the program failed: {status}");
        Ok(())
    }
}

fn command(witnesses: &Witnesses, nested: Nested, duration: Duration) -> Result<Command> {
    let dir = witnesses.testbed().dir();
    let functions = |frames: u32| {
        frames.checked_sub(OTHER_FRAMES).filter(|&functions| functions > 0).context("too few frames for the program")
    };
    let (mut command, words) = match nested {
        Nested::C { frames, kilobytes } => {
            (Command::new(dir.join("nested_calls")), vec![functions(frames)?, millis(duration), kilobytes])
        }
        Nested::CFramePointers { frames, kilobytes } => {
            let program = dir.join("nested_calls_frame_pointers");
            (Command::new(program), vec![functions(frames)?, millis(duration), kilobytes])
        }
        Nested::Python { frames } => {
            ensure!(frames >= 2, "the module and a function are two frames");
            let mut command = Command::new("python3");
            command.env("PYTHONDONTWRITEBYTECODE", "1").arg(dir.join("nested_calls.py"));
            (command, vec![frames, millis(duration)])
        }
    };
    command.env("LD_LIBRARY_PATH", dir).args(words.iter().map(u32::to_string));
    Ok(command)
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_that_a_program_cannot_have_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let witnesses = Witnesses::unpack(dir.path()).unwrap();
        for nested in [Nested::C { frames: OTHER_FRAMES, kilobytes: 0 }, Nested::Python { frames: 1 }] {
            assert!(NestedCalls::start(&witnesses, nested, Duration::from_millis(1)).is_err());
        }
        NestedCalls::start(&witnesses, Nested::C { frames: 9, kilobytes: 4 }, Duration::from_millis(5))
            .and_then(NestedCalls::run)
            .unwrap();
        NestedCalls::start(&witnesses, Nested::Python { frames: 4 }, Duration::from_millis(5))
            .and_then(NestedCalls::run)
            .unwrap();
    }
}
