//! The part about stacks.

use std::fmt::Write;

use anyhow::Result;
use serde_json::Value;

use crate::docs::results::{measured_on, number};

pub fn write(text: &mut String, results: &Value) -> Result<()> {
    let second = results["second"].as_str().unwrap_or("no second witness");
    writeln!(
        text,
        "\n## Stacks\n\n`./dev accuracy stacks` on {}, against the programs' own record and a reference unwinder: \
         programs that write down their own stack before each of {} calls, native frames as libgcc's unwinder sees them \
         and Python's as the interpreter itself does. A stack is right when no frame is missing, added or another one, \
         and every Python frame has its function, file and executing line. The last column sets our walk in the live \
         process against {second}: how often names, files and lines of the main thread's whole stack are the same.\n\n\
         | program | Python | calls | stacks taken | walked to the end | native right | Python right | same as the other \
         reader |\n|---|---|---:|---:|---:|---:|---:|---|",
        measured_on(results),
        number(&results["situations"]),
    )?;
    for program in results["programs"].as_array().into_iter().flatten() {
        row(text, program)?;
    }
    Ok(())
}

/// Lines and stacks of PyTorch programs.
pub fn on_a_gpu(text: &mut String, results: &Value) -> Result<()> {
    writeln!(
        text,
        "\n### On a real GPU\n\n`python3 bench/gpu/stacks.py` on {}: training \
         scripts with one fault each and a marked line, {} s with default settings. The share of stacks that were walked \
         to their end is that of all walks, and from the tenth second on, when unwind tables were there. What a walk costs \
         is the mean over all; *tracing* is the share of the main thread's time that tracing took.\n\n\
         | script | first cause | line to change | native, to the end | Python, to the end | walks | us each | tracing |\n\
         |---|---|---|---:|---:|---:|---:|---:|",
        measured_on(results),
        number(&results["seconds"]),
    )?;
    for case in results["cases"].as_array().into_iter().flatten() {
        let shares = &case["shares"]["all"];
        let percent =
            |share: &Value| share.as_f64().map_or_else(|| "-".to_owned(), |share| format!("{:.1}", 100.0 * share));
        let both = |key: &str| format!("{} / {} %", percent(&shares[key]), percent(&shares[format!("{key}_later")]));
        writeln!(
            text,
            "| {} | {}{} | {} | {} | {} | {} | {:.1} | {} % |",
            case["case"].as_str().unwrap_or("?"),
            case["cause"].as_str().unwrap_or("nothing above low"),
            if case["is_cause_right"] == true { "" } else { " (**wrong**)" },
            case["blamed_line"].as_str().unwrap_or("-"),
            both("native"),
            both("python"),
            shares["walks"],
            shares["mean_us"].as_f64().unwrap_or(0.0),
            percent(&case["tracer"][0]["mean"]),
        )?;
    }
    Ok(())
}

fn row(text: &mut String, program: &Value) -> Result<()> {
    let count = |key: &str| program[key].as_u64().map_or_else(|| "-".to_owned(), |count| count.to_string());
    writeln!(
        text,
        "| {} | {} | {} | {} | {} | {} | {} | {} |",
        program["program"].as_str().unwrap_or("?"),
        program["version"].as_str().unwrap_or("-"),
        count("calls"),
        count("taken"),
        count("complete"),
        count("native_right"),
        count("python_right"),
        agreement(&program["second"]),
    )?;
    Ok(())
}

/// How often both agree; where they do not, whom the program's own record confirms.
fn agreement(second: &Value) -> String {
    if let Some(why) = second["why"].as_str() {
        return format!("n/a ({})", why.replace(['|', '\n'], " "));
    }
    let count = |key: &str| second[key].as_u64().unwrap_or(0);
    let (compared, agree) = (count("compared"), count("agree"));
    match (compared, compared.saturating_sub(agree)) {
        (0, _) => "-".to_owned(),
        (_, 0) => format!("{agree} of {compared}"),
        (_, differing) => format!(
            "{agree} of {compared}; of the {differing} others the program's own record confirms ours {}, theirs {}",
            count("ours_confirmed"),
            count("theirs_confirmed"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refusal_is_told_with_its_reason() {
        assert_eq!(agreement(&json!({ "why": "too | new" })), "n/a (too   new)");
        assert_eq!(agreement(&Value::Null), "-");
    }

    #[test]
    fn a_difference_says_who_is_confirmed() {
        let same = json!({ "compared": 5, "agree": 5, "ours_confirmed": 0, "theirs_confirmed": 0 });
        assert_eq!(agreement(&same), "5 of 5");
        let other = json!({ "compared": 5, "agree": 3, "ours_confirmed": 2, "theirs_confirmed": 0 });
        assert!(agreement(&other).starts_with("3 of 5; of the 2 others"), "{}", agreement(&other));
    }
}
