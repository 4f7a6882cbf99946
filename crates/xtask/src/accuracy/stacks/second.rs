//! Our own walk against another reader of the same stack at the same moment.
//!
//! The program makes calls that last long enough for both to look. Our walk looks before and after the other one: if it
//! saw the same twice, the stack was the same in between.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gpuwhy_testbed::stacks::{Program, Python, PythonFrame, Testimony, Witness, Witnesses};
use serde_json::{Value, json};

use super::live::Live;
use super::py_spy::{PySpy, Thread};

/// Once through all situations of the program.
const SITUATIONS: u32 = 43;
const CALL: Duration = Duration::from_millis(400);
/// Between two looks, so that the program comes to something else.
const PAUSE: Duration = Duration::from_millis(100);
const MOST_COMPLAINTS: usize = 5;

/// How often both agree about the main thread, or why that cannot be told.
pub fn compare(witnesses: &Witnesses, python: &Python, py_spy: &PySpy) -> Value {
    match try_compare(witnesses, python, py_spy) {
        Ok((comparison, testimony)) => comparison.told(&testimony),
        Err(error) => json!({ "why": format!("{error:#}") }),
    }
}

fn try_compare(witnesses: &Witnesses, python: &Python, py_spy: &PySpy) -> Result<(Comparison, Testimony)> {
    let witness = Witness::new(witnesses, Program::Python).situations(SITUATIONS).call(CALL).python(&python.path);
    let mut running = witness.start()?;
    let pid = running.pid();
    let live = Live::find(pid)?;
    // While it waits to go on, it has one thread.
    let main = py_spy.dump(pid)?.first().context("py-spy saw no thread")?.id;
    let mut comparison = Comparison::default();
    running.go()?;
    let begin = Instant::now();
    while begin.elapsed() < CALL * (SITUATIONS - 1) {
        comparison.look(&live, main, || py_spy.dump(pid));
        std::thread::sleep(PAUSE);
    }
    Ok((comparison, running.finish()?))
}

/// Stacks that both looked at.
#[derive(Default)]
struct Comparison {
    compared: usize,
    /// The other one could not read a stack that stood still.
    failed: usize,
    differing: Vec<Pair>,
}

struct Pair {
    ours: Vec<PythonFrame>,
    theirs: Vec<PythonFrame>,
}

impl Comparison {
    fn look(&mut self, live: &Live, main: u64, dump: impl FnOnce() -> Result<Vec<Thread>>) {
        let before = live.walk(main);
        let threads = dump();
        if live.walk(main) != before {
            return;
        }
        let ours = live.frames(&before).unwrap_or_default();
        match threads {
            Ok(threads) => self.add(ours, threads.into_iter().find(|thread| thread.id == main)),
            Err(_) => self.failed += 1,
        }
    }

    fn add(&mut self, ours: Vec<PythonFrame>, theirs: Option<Thread>) {
        let theirs = theirs.map(|thread| thread.frames).unwrap_or_default();
        self.compared += 1;
        if ours.is_empty() || !is_same(&ours, &theirs) {
            self.differing.push(Pair { ours, theirs });
        }
    }

    /// Where they differ, the program's own record may say who is right.
    fn told(&self, testimony: &Testimony) -> Value {
        let recorded: Vec<_> = testimony.python.iter().flat_map(|log| log.stacks.values()).collect();
        let confirmed = |stack: fn(&Pair) -> &[PythonFrame]| {
            let is_recorded = |pair: &&Pair| recorded.iter().any(|own| is_same(&own.frames, stack(pair)));
            self.differing.iter().filter(is_recorded).count()
        };
        json!({
            "compared": self.compared,
            "agree": self.compared - self.differing.len(),
            "failed": self.failed,
            "ours_confirmed": confirmed(|pair| &pair.ours),
            "theirs_confirmed": confirmed(|pair| &pair.theirs),
            "complaints": self.differing.iter().take(MOST_COMPLAINTS).map(Pair::words).collect::<Vec<_>>(),
        })
    }
}

impl Pair {
    /// The first frame about which they differ.
    fn words(&self) -> String {
        let at = self.ours.iter().zip(&self.theirs).take_while(|(ours, theirs)| is_same_frame(ours, theirs)).count();
        let told = |frames: &[PythonFrame]| {
            frames.get(at).map_or_else(
                || "nothing".to_owned(),
                |frame| format!("{} {}:{}", frame.function, file_name(frame), frame.line),
            )
        };
        format!("frame {at}: {} (we), {} (py-spy)", told(&self.ours), told(&self.theirs))
    }
}

fn is_same(ours: &[PythonFrame], theirs: &[PythonFrame]) -> bool {
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| is_same_frame(ours, theirs))
}

/// Names are qualified by one and not by the other, and folders are left out.
fn is_same_frame(ours: &PythonFrame, theirs: &PythonFrame) -> bool {
    let is_same_name = bare_name(ours) == bare_name(theirs);
    is_same_name && ours.line == theirs.line && file_name(ours) == file_name(theirs)
}

fn bare_name(frame: &PythonFrame) -> &str {
    frame.function.rsplit('.').next().unwrap_or_default()
}

fn file_name(frame: &PythonFrame) -> &str {
    frame.file.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_testbed::stacks::{PythonLog, PythonStack, WitnessLog};

    fn frame(function: &str, line: u32) -> PythonFrame {
        PythonFrame { function: function.into(), file: "/src/a.py".into(), line }
    }

    fn thread(frames: Vec<PythonFrame>) -> Option<Thread> {
        Some(Thread { id: 1, frames })
    }

    fn testimony(frames: Vec<PythonFrame>) -> Testimony {
        let stacks = [(0, PythonStack { tid: 1, frames })].into();
        Testimony { native: WitnessLog::default(), python: Some(PythonLog { stacks }) }
    }

    #[test]
    fn stacks_agree_when_every_name_and_line_does() {
        let mut comparison = Comparison::default();
        let ours = || vec![frame("Model.f.<locals>.<lambda>", 3), frame("<module>", 9)];
        comparison.add(ours(), thread(vec![frame("<lambda>", 3), frame("<module>", 9)]));
        comparison.add(ours(), thread(vec![frame("<lambda>", 4), frame("<module>", 9)]));
        comparison.add(ours(), thread(vec![frame("<lambda>", 3)]));
        comparison.add(ours(), None);
        let told = comparison.told(&testimony(ours()));
        assert_eq!((&told["compared"], &told["agree"]), (&json!(4), &json!(1)));
        assert_eq!((&told["ours_confirmed"], &told["theirs_confirmed"]), (&json!(3), &json!(0)));
    }

    #[test]
    fn a_stack_that_we_could_not_read_agrees_with_nothing() {
        let mut comparison = Comparison::default();
        comparison.add(Vec::new(), thread(Vec::new()));
        assert_eq!(comparison.told(&testimony(Vec::new()))["agree"], json!(0));
    }

    #[test]
    fn a_complaint_says_where_they_differ_first() {
        let pair = Pair { ours: vec![frame("g", 1), frame("f", 3)], theirs: vec![frame("g", 1), frame("f", 4)] };
        assert_eq!(pair.words(), "frame 1: f a.py:3 (we), f a.py:4 (py-spy)");
    }
}
