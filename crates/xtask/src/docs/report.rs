//! `docs/results/report.json`: for each promise what was last measured, small enough to be part of the binary. The
//! question `test_report` answers with it.

use anyhow::Result;
use serde_json::{Value, json};

use super::overhead::{Rows, interval, percent, slowdown};
use super::results::{load, measured_on, number};
use crate::accuracy::share_right;

pub fn render() -> Result<Option<String>> {
    let mut promises = Vec::new();
    for (file, of_results) in PARTS {
        if let Some(results) = load(file)? {
            promises.extend(of_results(&results));
        }
    }
    let text = serde_json::to_string_pretty(&json!({ "promises": promises }))?;
    Ok(Some(format!("{text}\n")))
}

/// What a part's results promise.
type Promises = fn(&Value) -> Vec<Value>;

/// Kept results, and what they say about promises.
const PARTS: &[(&str, Promises)] = &[
    ("accuracy.json", causes),
    ("gpu-causes.json", causes_on_a_gpu),
    ("stacks.json", stacks),
    ("gpu-stacks.json", lines_on_a_gpu),
    ("gpu-counts.json", counts_on_a_gpu),
    ("overhead.json", budgets),
    ("estimates.json", estimates),
    ("gpu-overhead.json", overhead_on_a_gpu),
];

/// Where and how something was measured.
struct Measured {
    part: &'static str,
    command: &'static str,
    machine: String,
}

impl Measured {
    fn new(part: &'static str, command: &'static str, results: &Value) -> Self {
        Self { part, command, machine: measured_on(results) }
    }

    /// So many of so many. An aim is the least share.
    fn share(&self, what: &str, (right, all): (usize, usize), aim: Option<f64>) -> Value {
        let share = right as f64 / all.max(1) as f64;
        let value = format!("{right} of {all} ({})", percent(share));
        let aim_text = aim.map(|aim| format!("at least {}", percent(aim)));
        self.promise(what, &value, aim_text, aim.map(|aim| all > 0 && share >= aim))
    }

    fn promise(&self, what: &str, value: &str, aim: Option<String>, is_kept: Option<bool>) -> Value {
        json!({ "part": self.part, "what": what, "value": value, "aim": aim, "is_kept": is_kept,
                "machine": self.machine, "command": self.command })
    }
}

fn rows<'a>(results: &'a Value, key: &str) -> &'a [Value] {
    results[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn causes(results: &Value) -> Vec<Value> {
    let measured = Measured::new("accuracy", "./dev accuracy", results);
    let runs = rows(results, "runs");
    let has_fault = |run: &&Value| run["expected"] != json!("none");
    let faulty = || runs.iter().filter(has_fault);
    let quiet = runs.iter().filter(|run| !has_fault(run));
    let dropped: Vec<&Value> = runs.iter().flat_map(|run| rows(run, "dropped")).collect();
    let is_sound = |one: &&&Value| rows(one, "sure_and_wrong").is_empty();
    let sound = dropped.iter().filter(is_sound).count();
    let right = |what, key, aim| measured.share(what, share_right(faulty(), key), aim);
    vec![
        right("the first cause is right", "cause_right", Some(0.95)),
        right("the process to blame is right", "process_right", Some(0.95)),
        right("the thread to blame is right, where one is", "thread_right", Some(0.95)),
        right("the source line to change comes first", "line_right", None),
        right("the source line to change is named", "line_anywhere", None),
        measured.share(
            "nothing of medium or high severity where nothing is wrong",
            share_right(quiet, "cause_right"),
            Some(1.0),
        ),
        measured.share(
            "with records dropped on purpose, never sure of a wrong cause",
            (sound, dropped.len()),
            Some(1.0),
        ),
    ]
}

fn causes_on_a_gpu(results: &Value) -> Vec<Value> {
    let measured = Measured::new("accuracy", "python3 bench/gpu/causes.py", results);
    let runs = || rows(results, "scenarios").iter();
    vec![
        measured.share("the first cause is right, PyTorch training", share_right(runs(), "cause_right"), None),
        measured.share("the culprit is right, PyTorch training", share_right(runs(), "culprit_right"), None),
    ]
}

fn stacks(results: &Value) -> Vec<Value> {
    let measured = Measured::new("accuracy", "./dev accuracy stacks", results);
    let programs = rows(results, "programs");
    let of = |key: &str| {
        let known = programs.iter().filter_map(|program| Some((program[key].as_u64()?, program["taken"].as_u64()?)));
        known.fold((0, 0), |(right, all), (more, taken)| (right + more as usize, all + taken as usize))
    };
    vec![
        measured.share("native frames of a stack are right", of("native_right"), None),
        measured.share("Python frames of a stack are right", of("python_right"), None),
    ]
}

fn lines_on_a_gpu(results: &Value) -> Vec<Value> {
    let measured = Measured::new("accuracy", "python3 bench/gpu/stacks.py", results);
    let cases = rows(results, "cases");
    let with_line = cases.iter().filter(|case| case["blamed_line"].is_string());
    let first = with_line.clone().filter(|case| case["blamed_line"] == json!("first")).count();
    let causes = share_right(cases.iter(), "is_cause_right");
    vec![
        measured.share("the first cause of a PyTorch script with one fault is right", causes, None),
        measured.share("its marked line comes first, of those that name one", (first, with_line.count()), None),
    ]
}

fn counts_on_a_gpu(results: &Value) -> Vec<Value> {
    let measured = Measured::new("accuracy", "python3 bench/gpu/counts.py", results);
    let rows = rows(results, "rows");
    let equal = rows.iter().filter(|row| row["difference"] == json!("equal")).count();
    vec![measured.share("numbers of calls are those that NVIDIA's own profiler counts", (equal, rows.len()), None)]
}

fn budgets(results: &Value) -> Vec<Value> {
    let measured = Measured::new("overhead", "./dev bench overhead", results);
    let rows = Rows::of(results);
    let mut budgets: Vec<&Value> = rows.busy().filter(|row| row["budget"].is_f64()).collect();
    budgets.sort_by(|a, b| number(&a["budget"]).total_cmp(&number(&b["budget"])));
    let promise = |row: &&Value| {
        let budget = percent(number(&row["budget"]));
        let what = format!("slow-down of a thread with {} calls a second, budget {budget}", rows.busy_rate());
        let value = format!("{} (interval {} %)", percent(slowdown(row)), interval(&row["slowdown"]));
        let is_kept = is_kept(slowdown(row), number(&row["slowdown"]["low"]), number(&row["budget"]));
        measured.promise(&what, &value, Some(format!("at most {budget}")), is_kept)
    };
    budgets.iter().map(promise).collect()
}

/// Not known where the interval reaches to both sides of the budget.
fn is_kept(median: f64, low: f64, budget: f64) -> Option<bool> {
    if median <= budget { Some(true) } else { (low > budget).then_some(false) }
}

fn estimates(results: &Value) -> Vec<Value> {
    let measured = Measured::new("overhead", "./dev bench estimates", results);
    let part = &results["estimates"];
    let count = |key: &str| part[key].as_u64().unwrap_or(0) as usize;
    let runs = count("runs");
    vec![
        measured.share(
            "the true number of sampled calls lies within the stated 95 % interval",
            (count("within_interval"), runs),
            None,
        ),
        measured.share("the 99th percentile of sampled calls is within 10 %", (count("p99_within_tenth"), runs), None),
    ]
}

/// The default keeps to a budget of 1 %.
const DEFAULT_BUDGET: f64 = 0.01;

fn overhead_on_a_gpu(results: &Value) -> Vec<Value> {
    let measured = Measured::new("overhead", "python3 bench/gpu/overhead.py", results);
    let cells = rows(results, "cells").iter();
    let of_default = cells.filter(|cell| cell["way"] == json!("default") && cell["median_slowdown"].is_f64());
    let promise = |cell: &Value| {
        let (low, high) = (number(&cell["ci_low"]), number(&cell["ci_high"]));
        let median = number(&cell["median_slowdown"]);
        let what = format!("slow-down of {} on a GPU, default settings", cell["workload"].as_str().unwrap_or("?"));
        let value = format!("{} (interval {:.2} to {:.2} %)", percent(median), low * 100.0, high * 100.0);
        let aim = format!("at most {}", percent(DEFAULT_BUDGET));
        measured.promise(&what, &value, Some(aim), is_kept(median, low, DEFAULT_BUDGET))
    };
    of_default.map(promise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_neither_kept_nor_exceeded_where_noise_hides_it() {
        assert_eq!(is_kept(0.005, 0.001, 0.01), Some(true));
        assert_eq!(is_kept(0.03, -0.01, 0.01), None);
        assert_eq!(is_kept(0.03, 0.02, 0.01), Some(false));
    }

    #[test]
    fn a_share_says_how_many_of_how_many_and_whether_the_aim_was_reached() {
        let machine = json!({ "kernel": "6.18", "cpus": 2, "cpu": "x" });
        let measured = Measured::new("accuracy", "./dev accuracy", &json!({ "machine": machine }));
        let promise = measured.share("it is right", (19, 20), Some(0.96));
        assert_eq!(promise["value"], json!("19 of 20 (95.00 %)"));
        assert_eq!(promise["is_kept"], json!(false));
        assert_eq!(promise["machine"], json!("Linux 6.18, 2 x x (commit ?, version ?)"));
        assert_eq!(measured.share("", (0, 0), Some(0.5))["is_kept"], json!(false), "nothing measured keeps nothing");
        assert_eq!(measured.share("", (1, 2), None)["is_kept"], json!(null));
    }
}
