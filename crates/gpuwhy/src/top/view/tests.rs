use std::time::Duration;

use gpuwhy_model::{LossReason, Losses, Severity, Totals};
use ratatui_core::backend::TestBackend;
use ratatui_core::style::Color;
use ratatui_core::terminal::Terminal;

use super::super::look::PLAIN;
use super::super::state::tests_support::{explanation, finding, row, thread};
use super::super::state::{News, Second, Wish};
use super::*;

const COLOURS: Look = Look { has_colour: true, is_unicode: true };

fn state() -> State {
    let mut state = State::new("gpuwhy top".into(), Some(0.01));
    let mut losses = Losses::default();
    losses.add(LossReason::RingFull, 12);
    let mut totals = Totals {
        elapsed: Duration::from_secs(75),
        seen: 1_234_567,
        stored: 200_000,
        losses,
        probes: 312,
        ..Totals::default()
    };
    totals.cost.worst = 0.0031;
    let second = Second {
        totals,
        calls: vec![
            row("cuLaunchKernel", 12_000, 4_000, 0),
            row("cuStreamSynchronize", 40, 9_000_000, 0),
            row("cuMemAlloc_v2", 3, 80_000, 2),
        ],
        threads: vec![thread(4242, "python", [20, 10, 40, 20, 10]), thread(4300, "pt_autograd", [100, 0, 0, 0, 0])],
    };
    let answer = Some(Ok(explanation(vec![finding(4242)])));
    state.take(News { second: Some(second), note: Some("attached libcuda.so.1".into()), answer });
    state
}

fn buffer(state: &State, look: Look, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen(state, look, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(state: &State, look: Look, width: u16, height: u16) -> Vec<String> {
    let buffer = buffer(state, look, width, height);
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

fn text(state: &State, width: u16, height: u16) -> String {
    lines(state, PLAIN, width, height).join("\n")
}

#[test]
fn a_terminal_of_80_by_24_shows_everything_that_matters() {
    let expected = "\
gpuwhy top  75 s  12,043 calls/s  cost 0.31 % of 1.00 %  312 functions probed
1,234,567 calls seen, 200,000 kept; tracer 0.00 % of a CPU; lost 12 ring_full
- 1 Threads (2)  #run =calls ~GPU .blocked !CPU --------------------------------
 python 4242             ######===~~~~~~~~~~~~~......!!!  40 % waits for GPU
 pt_autograd 4300        ############################### 100 % running
- 2 Calls (3)  by time ---------------------------------------------------------
 call                  process                 calls/s      p50      p99  errors
 cuStreamSynchronize   python 4242                  40  8.91 ms  8.91 ms       0
 cuLaunchKernel        python 4242              12,000  3.97 us  3.97 us       0
 cuMemAlloc_v2         python 4242                   3  77.8 us  77.8 us       2
-[3 Findings (1)] last 30 s ----------------------------------------------------
 HIGH input-starved for 0 s
   python (4242) waited 4.20 s of 10.0 s for worker (4250), which was waiting
   for a disk.
   by worker (4250): reads from vda
   at loader.py:31 in read_sample
";
    let text = text(&state(), 80, 24);
    assert!(text.starts_with(expected), "{text}");
    assert!(text.lines().nth(22).unwrap().contains("attached libcuda.so.1"), "{text}");
    assert!(text.lines().nth(23).unwrap().starts_with("q quit  ? help"), "{text}");
}

#[test]
fn no_finding_is_cut_at_80_by_24() {
    let mut state = state();
    let found = (0..4).map(|pid| {
        let mut finding = finding(pid);
        finding.summary = format!("Finding {pid} {} ends here{pid}.", "says a good deal of what went wrong".repeat(5));
        finding.severity = Severity::Medium;
        finding
    });
    state.take(News { answer: Some(Ok(explanation(found.collect()))), ..News::default() });
    for chosen in 0..4 {
        let text = text(&state, 80, 24);
        for pid in 0..4 {
            let begins = text.contains(&format!("Finding {pid} "));
            assert_eq!(begins, text.contains(&format!("here{pid}.")), "finding {pid} is cut:\n{text}");
        }
        assert!(text.contains(&format!("Finding {chosen} ")), "{text}");
        assert_eq!(text.contains("more below"), !text.contains("Finding 3 "), "{text}");
        state.wish(Wish::Move(1));
    }
}

#[test]
fn a_small_terminal_shows_the_panel_that_is_looked_at() {
    let mut state = state();
    let findings = text(&state, 40, 10);
    assert!(findings.contains("HIGH input-starved") && !findings.contains("1 Threads"), "{findings}");
    state.wish(Wish::Focus(Panel::Calls));
    let calls = text(&state, 40, 10);
    assert!(calls.contains("cuMemAlloc_v2") && calls.contains("p99"), "{calls}");
    assert!(calls.lines().last().unwrap().starts_with("q quit  ? help"), "{calls}");
}

#[test]
fn a_large_terminal_shows_more() {
    let text = text(&state(), 200, 60);
    for words in ["waits for GPU  . blocked  ! waits for CPU", "tracer", "run queue", "in calls", "~  40.0 %"] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[test]
fn every_size_can_be_drawn() {
    let mut state = state();
    for wish in [Wish::Pause, Wish::Help, Wish::Close, Wish::Open, Wish::Last] {
        state.wish(wish);
        for look in [PLAIN, COLOURS] {
            for width in (1..40).chain([79, 80, 81, 132, 250]) {
                for height in (1..30).chain([60]) {
                    buffer(&state, look, width, height);
                }
            }
        }
    }
}

#[test]
fn a_terminal_without_colours_and_utf_8_gets_neither() {
    let mut state = state();
    state.second.threads[0].comm = "漢字\u{e9}".into();
    state.wish(Wish::Open);
    let buffer = buffer(&state, PLAIN, 80, 24);
    for cell in buffer.content() {
        assert!(cell.symbol().is_ascii(), "{:?}", cell.symbol());
        assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
    }
}

#[test]
fn hostile_names_are_text_in_their_place() {
    let mut state = state();
    let name = "\u{1b}[2J\u{202e}evil\n\u{9b}31m漢";
    state.second.threads[0].comm = name.into();
    state.second.calls[0].comm = name.into();
    let mut found = finding(1);
    found.summary = format!("{name} waited");
    found.culprit.as_mut().unwrap().comm = name.into();
    found.r#where[0].file = name.into();
    state.take(News { answer: Some(Ok(explanation(vec![found]))), note: Some(name.into()), ..News::default() });
    for look in [PLAIN, COLOURS] {
        for open in [false, true] {
            state.wish(if open { Wish::Open } else { Wish::Close });
            let buffer = buffer(&state, look, 80, 24);
            let hostile = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
            let shown = buffer.content().iter().find(|cell| cell.symbol().contains(hostile));
            assert!(shown.is_none(), "{shown:?}");
            assert!(lines(&state, look, 80, 24).join("\n").contains("\\u{1b}[2J\\u{202e}evil"));
        }
    }
}

#[test]
fn an_open_finding_tells_everything_and_scrolls() {
    let mut state = state();
    state.wish(Wish::Open);
    let whole = text(&state, 100, 40);
    for words in
        ["input-starved, high, 93 % sure", "Why", "- it waited for a worker (observed)", "works at loader.py:31"]
    {
        assert!(whole.contains(words), "{words}\n{whole}");
    }
    assert!(whole.contains("What to change") && whole.contains("Read ahead, or from a faster disk."), "{whole}");
    let top = text(&state, 60, 12);
    assert!(top.contains("more lines: down") && !top.contains("Read ahead"), "{top}");
    state.wish(Wish::Last);
    assert!(text(&state, 60, 12).contains("Read ahead"));
}

#[test]
fn a_rows_colour_says_what_it_is_and_the_chosen_one_is_marked() {
    let mut state = state();
    state.wish(Wish::Focus(Panel::Threads));
    let text = lines(&state, COLOURS, 80, 24);
    let y = text.iter().position(|line| line.contains("python 4242")).unwrap() as u16;
    let buffer = buffer(&state, COLOURS, 80, 24);
    let at =
        |mark: &str| buffer.content().iter().skip(80 * y as usize).find(|cell| cell.symbol() == mark).unwrap().clone();
    assert_eq!((at("#").fg, at("!").fg), (Color::Green, Color::Red));
    assert!(at("#").modifier.contains(ratatui_core::style::Modifier::REVERSED));
}

#[test]
fn before_there_is_anything_the_view_says_so() {
    let text = text(&State::new("gpuwhy top".into(), None), 80, 24);
    assert!(text.contains("no traced thread has launched") && text.contains("looking for causes"), "{text}");
}
