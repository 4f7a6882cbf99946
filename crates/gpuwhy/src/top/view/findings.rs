//! What keeps the GPU waiting: severity, the sentence, who and which line. And all of one finding, for the popup.

use std::time::Duration;

use gpuwhy_model::{Culprit, Evidence, Finding, Place, Role};
use ratatui_core::text::{Line, Span};

use super::super::look::Look;
use super::super::state::{Found, State};
use super::text::wrap;

const INDENT: usize = 3;

/// What to say while there is no finding.
pub fn nothing(state: &State) -> String {
    let verdict = &state.verdict;
    match (&verdict.problem, verdict.has_dispatchers) {
        (Some(problem), _) => format!("no answer: {problem}"),
        (None, None) => "looking for causes; the first answer takes a few seconds".to_owned(),
        (None, Some(false)) => "nothing has fed a GPU in the last 30 s".to_owned(),
        (None, Some(true)) => "nothing on this host keeps the GPU waiting".to_owned(),
    }
}

/// A finding as a few lines, whole.
pub fn item(found: &Found, now: Duration, look: Look, width: usize) -> Vec<Line<'static>> {
    let Found { finding, since } = found;
    let title = format!(" {} {}", finding.severity.as_str().to_uppercase(), finding.cause);
    let age = format!(" for {} s", now.saturating_sub(*since).as_secs());
    let mut lines =
        vec![Line::from(vec![Span::styled(title, look.severity(finding.severity)), Span::styled(age, look.faint())])];
    let mut tell = |text: &str| lines.extend(paragraph(&look.text(text), INDENT, width).into_iter().map(Line::raw));
    tell(&finding.summary);
    if let Some(culprit) = &finding.culprit {
        // The sentence often says what it was doing.
        let detail = if finding.summary.contains(&culprit.detail) { "" } else { &culprit.detail };
        tell(&format!("by {}", who(culprit, detail)));
    }
    if let Some(place) = main_place(finding) {
        tell(&format!("at {}", place_text(place)));
    }
    lines
}

/// Everything about a finding.
pub fn details(finding: &Finding, look: Look, width: usize) -> Vec<Line<'static>> {
    let sure = (finding.confidence * 100.0).round();
    let title = format!("{}, {}, {sure} % sure", finding.cause, finding.severity);
    let mut lines = vec![Line::styled(title, look.severity(finding.severity)), Line::default()];
    let mut section = |title: &'static str, texts: Vec<String>| {
        if texts.is_empty() {
            return;
        }
        if !title.is_empty() {
            lines.push(Line::styled(title, look.title()));
        }
        for text in texts {
            lines.extend(
                paragraph(&look.text(&text), if title.is_empty() { 0 } else { 2 }, width).into_iter().map(Line::raw),
            );
        }
        lines.push(Line::default());
    };
    section("", vec![finding.summary.clone()]);
    section("Why", finding.chain.edges().map(|edge| chain_text(&edge.what, edge.evidence)).collect());
    section("Culprit", finding.culprit.iter().map(|culprit| who(culprit, &culprit.detail)).collect());
    section(
        "Where",
        finding.r#where.iter().map(|place| format!("{} {}", does(place.role), place_text(place))).collect(),
    );
    section("What to change", finding.fix.clone());
    lines.pop();
    lines
}

fn chain_text(what: &str, evidence: Evidence) -> String {
    format!("- {what} ({evidence})")
}

fn who(culprit: &Culprit, detail: &str) -> String {
    let Culprit { pid, comm, .. } = culprit;
    let who = if *pid == 0 { comm.clone() } else { format!("{comm} ({pid})") };
    if detail.is_empty() { who } else { format!("{who}: {detail}") }
}

/// The culprit's own line says most.
fn main_place(finding: &Finding) -> Option<&Place> {
    let places = || finding.r#where.iter();
    places().find(|place| place.role == Role::Culprit).or_else(|| places().next())
}

fn does(role: Role) -> &'static str {
    match role {
        Role::Victim => "waits at",
        Role::Culprit => "works at",
    }
}

fn place_text(place: &Place) -> String {
    let line = place.line.map(|line| format!(":{line}")).unwrap_or_default();
    let function = place.function.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
    format!("{}{line}{function}", place.file)
}

fn paragraph(text: &str, indent: usize, width: usize) -> Vec<String> {
    let blank = " ".repeat(indent.min(width));
    wrap(text, 0, width.saturating_sub(indent)).into_iter().map(|line| format!("{blank}{line}")).collect()
}
