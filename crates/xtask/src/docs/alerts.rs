//! `docs/alerts.md` from the list of conditions.

use std::fmt::Write;

use anyhow::Result;
use gpuwhy_alerts::{CONDITIONS, MOST_WATCHED};

const EXAMPLE: &str = include_str!("../../../../deploy/alerts.toml");

pub fn render() -> Result<Option<String>> {
    let mut text = "# Alerts

`gpuwhy trace --rules FILE` watches limits while it traces. An alert fires when a value is above its limit, for as long
as `for` says, and is over when the value was below `until_below` for as long as `until_after` says. The file is TOML. A
file with a mistake is refused before anything is traced, with the line and the column.

| `when` | `above` | one value for each | what it is |
|---|---|---|---|
"
    .to_owned();
    for condition in CONDITIONS {
        let example = condition.unit.example();
        writeln!(text, "| `{}` | `\"{example}\"` | {} | {} |", condition.name, condition.each, condition.meaning)?;
    }
    write!(
        text,
        "
The first four are looked at once a second. What `explain` finds in the last 5 seconds is looked at about as often, so
that `gpu-idle` and `finding` take some seconds longer; that takes a tenth of a CPU at most.

| of an alert | what it is | unless it is there |
|---|---|---|
| `name` | what the alert is called | |
| `when`, `above` | the value and its limit; `finding` needs none | |
| `for` | how long the value has to be above | the first value counts |
| `until_below`, `until_after` | from when on the alert is over | nine tenths of `above`, 10 s |
| `process` | only processes with this name; `python*` is the start of one | all |
| `function` | of `call-p99`: only this function, in the same way | all |
| `cause`, `severity` | of `finding`: only this cause, and at least so grave | all, `high` |
| `actions` | what is done, by name | `log` |

| of an action | what it does |
|---|---|
| `json = \"FILE\"` | adds a line of JSON to the file |
| `webhook = \"URL\"` | posts the same as JSON; when that fails, again after half a second and then less and less often, up to every 30 s |
| `command = [\"PROGRAM\", ...]` | runs it, with the same on its input and `GPUWHY_ALERT` and `GPUWHY_STATE` (`firing` or `over`) in its environment |

Each action has a queue of 1,000 events. What it has no room for, and what could not be told by the end of the trace, is
counted and said at the end. At most {MOST_WATCHED} processes, functions, GPUs and causes are watched at once.
No action touches the programs that are traced.

An example (`deploy/alerts.toml`):

```toml
{EXAMPLE}```
"
    )?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_has_an_alert_for_everything_that_can_have_one() {
        let rules = gpuwhy_alerts::Rules::parse(EXAMPLE).unwrap();
        for condition in CONDITIONS {
            assert!(rules.alerts.iter().any(|alert| alert.condition == *condition), "{}", condition.name);
        }
    }
}
