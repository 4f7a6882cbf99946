//! A flame graph that any browser shows, in one file: outermost frames at the bottom, as wide as the time that passed in them. A
//! click on a frame makes it as wide as the page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use gpuwhy_questions::questions::stacks::Of;

use crate::{Export, ExportError, Format, Holds, Out, stacks};

pub const FORMAT: Format =
    Format { name: "flamegraph", read_by: "any browser", extension: "svg", holds: Holds::OneKindOfStacks, write };

const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
const HEADER: f64 = 34.0;

/// What would be narrower is not drawn, pixels.
const NARROWEST: f64 = 0.3;

/// Makes the frame that was clicked as wide as the page, and those around it with it.
const ZOOM: &str = include_str!("flamegraph.js");

fn write(export: &Export<'_>, out: &mut Out<'_>) -> Result<(), ExportError> {
    let mut root = Node::default();
    for line in stacks::folded(export)? {
        let (frames, number) = line.rsplit_once(' ').unwrap_or((&line, "0"));
        root.add(frames.split(';'), number.parse().unwrap_or(0));
    }
    let unit = if export.stacks_of == Of::Running { "samples" } else { "us" };
    let height = HEADER + ROW * (root.depth() + 1) as f64;
    let title = format!("gpuwhy: stacks of {}, {} {unit}", stacks::named(export.stacks_of), root.total);
    writeln!(
        out,
        r##"<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="100%" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#fff"/><text x="8" y="20" font-size="15">{title}</text>"##
    )?;
    let mut drawn = Drawn { out, unit, total: root.total.max(1) as f64, height };
    drawn.frame("all", &root, 0, 0)?;
    Ok(writeln!(out, "<script><![CDATA[\n{ZOOM}]]></script>\n</svg>")?)
}

/// A frame, with what was called from it.
#[derive(Default)]
struct Node {
    total: u64,
    callees: BTreeMap<String, Node>,
}

impl Node {
    fn add<'a>(&mut self, frames: impl Iterator<Item = &'a str>, number: u64) {
        self.total = self.total.saturating_add(number);
        let mut node = self;
        for frame in frames {
            node = node.callees.entry(frame.to_owned()).or_default();
            node.total = node.total.saturating_add(number);
        }
    }

    fn depth(&self) -> usize {
        self.callees.values().map(|callee| callee.depth() + 1).max().unwrap_or(0)
    }
}

struct Drawn<'w> {
    out: &'w mut dyn Write,
    unit: &'static str,
    total: f64,
    height: f64,
}

impl Drawn<'_> {
    fn frame(&mut self, name: &str, node: &Node, before: u64, depth: usize) -> Result<(), ExportError> {
        let (from, part) = (before as f64 / self.total, node.total as f64 / self.total);
        if part * WIDTH < NARROWEST {
            return Ok(());
        }
        let (x, width, y) = (from * WIDTH, part * WIDTH, self.height - ROW * (depth + 1) as f64);
        let (label, hue) =
            (escaped(name), 10 + name.bytes().fold(7u32, |sum, byte| sum * 31 % 45 + u32::from(byte)) % 45);
        let unit = self.unit;
        let shown: String = name.chars().take((width / 7.0) as usize).collect();
        writeln!(
            self.out,
            r##"<g data-x="{from:.7}" data-w="{part:.7}"><title>{label}: {} {unit}, {:.1} %</title><rect x="{x:.2}" y="{y}" width="{width:.2}" height="{}" rx="2" fill="hsl({hue},80%,68%)"/><text x="{:.2}" y="{}">{}</text></g>"##,
            node.total,
            part * 100.0,
            ROW - 1.0,
            x + 3.0,
            y + 13.0,
            escaped(&shown),
        )?;
        let mut at = before;
        for (name, callee) in &node.callees {
            self.frame(name, callee, at, depth + 1)?;
            at += callee.total;
        }
        Ok(())
    }
}

/// Names come from traced programs.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            control if control.is_control() => {
                let _ = write!(escaped, "\\u{{{:x}}}", u32::from(control));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_wide_as_their_time_and_lie_on_their_callers() {
        let mut root = Node::default();
        root.add("main;step;<launch> & go".split(';'), 30);
        root.add("main;load".split(';'), 70);
        assert_eq!((root.total, root.depth()), (100, 3));
        let mut out = Vec::new();
        let mut drawn = Drawn { out: &mut out, unit: "us", total: 100.0, height: 100.0 };
        drawn.frame("all", &root, 0, 0).unwrap();
        let text = String::from_utf8(out).unwrap();
        let frames: Vec<&str> = text.lines().collect();
        assert_eq!(frames.len(), 5);
        assert!(
            frames[2].starts_with(r#"<g data-x="0.0000000" data-w="0.7000000"><title>load: 70 us, 70.0 %"#),
            "{text}"
        );
        assert!(
            frames[4].contains(r#"data-x="0.7000000" data-w="0.3000000"><title>&lt;launch&gt; &amp; go: 30"#),
            "{text}"
        );
    }

    #[test]
    fn what_is_narrower_than_a_pixel_is_left_out() {
        let mut root = Node::default();
        root.add("a".split(';'), 1);
        root.add("b".split(';'), 1_000_000);
        let mut out = Vec::new();
        let mut drawn = Drawn { out: &mut out, unit: "us", total: root.total as f64, height: 100.0 };
        drawn.frame("all", &root, 0, 0).unwrap();
        assert_eq!(String::from_utf8(out).unwrap().lines().count(), 2);
    }
}
