//! The part about jobs of several ranks.

use std::fmt::Write;

use anyhow::Result;
use serde_json::Value;

use super::runs;
use crate::docs::results::{measured_on, number};

/// What of a run can be right, and how it is headed.
const COLUMNS: &[(&str, &str)] = &[
    ("right", "right rank"),
    ("right_on_hosts", "right rank, on two hosts"),
    ("cause_right", "what it did"),
    ("line_right", "its line first"),
    ("every_rank_has_its_line", "every rank's line"),
];

pub fn write(text: &mut String, results: &Value) -> Result<()> {
    let runs = runs(results);
    writeln!(
        text,
        "\n## Jobs of several ranks\n\n`./dev accuracy ranks` on {}: {} runs of 2 to 5 ranks in Python on the fake GPU, in steps \
         of {} ms. One rank is 5 or 16 ms late in each step, becomes 16 ms late after 200 steps, or leaves the others hanging. In balanced runs none may be named; in \
         runs that are all stuck nobody is blamed. Each run with a late rank and each balanced one is also told as if the odd ranks \
         had run on another host, whose clock is off by up to 5 s: the trace is taken apart, its other half moved in time, and \
         `gpuwhy merge` puts both together. A balanced run in which a rank waited for a CPU that a rank of \
         the other host had counts as right, as they share the CPUs of one machine; there are {} of these. A dash stands for what does \
         not apply.\n\n\
         | one rank | runs | {} | told after |\n|---|---|{}---|",
        measured_on(results),
        runs.len(),
        number(&results["step_ms"]),
        runs.iter().filter(|run| run["shared_cpu"] == true).count(),
        COLUMNS.iter().map(|(_, heading)| *heading).collect::<Vec<_>>().join(" | "),
        "---|".repeat(COLUMNS.len()),
    )?;
    let mut kinds: Vec<&str> = Vec::new();
    for kind in runs.iter().filter_map(|run| run["kind"].as_str()) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for kind in kinds {
        let own: Vec<&Value> = runs.iter().filter(|run| run["kind"] == kind).collect();
        let cells: Vec<String> = COLUMNS.iter().map(|(column, _)| cell(&own, column)).collect();
        writeln!(
            text,
            "| {} | {} | {} | {} |",
            kind.replace('_', " "),
            own.len(),
            cells.join(" | "),
            told_after(&own)
        )?;
    }
    Ok(())
}

/// Usually, and at most.
fn told_after(runs: &[&Value]) -> String {
    let mut told: Vec<u64> = runs.iter().filter_map(|run| run["told_after_ms"].as_u64()).collect();
    told.sort_unstable();
    let seconds = |ms: u64| ms as f64 / 1000.0;
    match told.last() {
        None => "-".to_owned(),
        Some(&most) => format!("{:.1} s, {:.1} s at most", seconds(told[told.len() / 2]), seconds(most)),
    }
}

fn cell(runs: &[&Value], column: &str) -> String {
    let known: Vec<bool> = runs.iter().filter_map(|run| run[column].as_bool()).collect();
    match known.len() {
        0 => "-".to_owned(),
        all => format!("{} of {all}", known.iter().filter(|right| **right).count()),
    }
}
