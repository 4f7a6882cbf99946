//! The part of the page that is measured on a GPU: workloads by ways, both in the order of the results.

use std::fmt::Write;

use anyhow::Result;
use serde_json::Value;

use super::super::results::{measured_on, number};
use super::{baseline, percent};

pub fn on_a_gpu(text: &mut String, results: &Value) -> Result<()> {
    let rows = results.as_array().or_else(|| results["cells"].as_array()).map_or(&[][..], Vec::as_slice);
    let (ways, workloads) = (distinct(rows, "way"), distinct(rows, "workload"));
    writeln!(text, "\n## On a GPU\n\n`bench/gpu/overhead.py` on {}.\n", measured_on(results))?;
    writeln!(
        text,
        "How much longer a unit of the workload takes: medians of pairs, with the interval that holds the true median and, \
         where the tracer has one, its own estimate. {}\n",
        baseline(&results["baseline"]),
    )?;
    writeln!(text, "| workload | unit, ms | {} |", ways.join(" | "))?;
    writeln!(text, "|---|---:|{}", "---|".repeat(ways.len()))?;
    for workload in workloads {
        let of_workload = || rows.iter().filter(|row| row["workload"] == workload);
        let unit =
            of_workload().find_map(|row| row["unit_ms"].as_f64()).map_or_else(String::new, |ms| format!("{ms:.2}"));
        let cells = ways.iter().map(|way| of_workload().find(|row| row["way"] == *way).map_or_else(String::new, cell));
        writeln!(text, "| {workload} | {unit} | {} |", cells.collect::<Vec<String>>().join(" | "))?;
    }
    Ok(())
}

/// The values of a field, each once, in the order in which they come.
fn distinct<'a>(rows: &'a [Value], field: &str) -> Vec<&'a str> {
    let mut values = Vec::new();
    for value in rows.iter().filter_map(|row| row[field].as_str()) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

fn cell(row: &Value) -> String {
    let Some(slowdown) = row["median_slowdown"].as_f64() else {
        return "not run".to_owned();
    };
    let (low, high) = (number(&row["ci_low"]) * 100.0, number(&row["ci_high"]) * 100.0);
    let estimate = row["estimate"].as_f64().map_or_else(String::new, |share| format!(", says {}", percent(share)));
    format!("{} ({low:.2} to {high:.2}){estimate}", percent(slowdown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ways_become_columns_and_what_was_not_measured_stays_empty() {
        let row = |workload, way, slowdown, estimate| {
            json!({"workload": workload, "way": way, "median_slowdown": slowdown, "ci_low": 0.0, "ci_high": 0.02,
                   "unit_ms": 5.0, "estimate": estimate})
        };
        let results = json!({"cells": [
            row("decode", "default", Some(0.01), Some(0.02)),
            row("decode", "profiler", Some(0.3), None),
            row("training", "profiler", None, None),
        ]});
        let mut text = String::new();
        assert!(on_a_gpu(&mut text, &results).is_ok());
        assert!(text.contains("| workload | unit, ms | default | profiler |"), "{text}");
        let decode = "| decode | 5.00 | 1.00 % (0.00 to 2.00), says 2.00 % | 30.00 % (0.00 to 2.00) |";
        assert!(text.contains(decode), "{text}");
        assert!(text.contains("| training | 5.00 |  | not run |"), "{text}");
    }
}
