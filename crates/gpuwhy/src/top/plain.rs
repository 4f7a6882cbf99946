//! The same view as text, once a second, where there is no terminal to draw on: pipes, logs, CI.

use std::io::Write;
use std::sync::Arc;

use gpuwhy_agent::{Live, Watch};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use super::About;
use super::asking::Asking;
use super::board::{Board, Pinning};
use super::look::PLAIN;
use super::state::State;
use super::view;
use crate::print;

const WIDTH: u16 = 100;
/// Lines of a picture; those at its end that are empty are left out.
const HEIGHT: u16 = 40;

pub struct Plain {
    pinning: Pinning,
    state: State,
    _asking: Asking,
}

impl Plain {
    pub fn new(about: &About) -> Self {
        let board = Arc::new(Board::default());
        let asking = board.ask(about.file.clone());
        Self { pinning: Pinning(board), state: about.state(), _asking: asking }
    }
}

impl Watch for Plain {
    fn second(&mut self, live: &Live) {
        self.pinning.second(live);
        self.state.take(self.pinning.0.news());
        // A reader that is gone ends the program by a signal.
        let _ = write!(std::io::stdout().lock(), "{}\n\n", text(&self.state));
    }

    fn note(&mut self, text: &str) {
        print::note(text);
    }
}

fn text(state: &State) -> String {
    let area = Rect::new(0, 0, WIDTH, HEIGHT);
    let mut buffer = Buffer::empty(area);
    view::report(state, PLAIN, area, &mut buffer);
    let line = |y| (0..WIDTH).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let lines: Vec<_> = (0..HEIGHT).map(|y| line(y).trim_end().to_owned()).collect();
    lines.join("\n").trim_end().to_owned()
}
