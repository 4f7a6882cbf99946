//! The rules file.

use std::path::PathBuf;
use std::time::Duration;

use gpuwhy_model::{Severity, units};
use serde::Deserialize;
use toml::Spanned;

use crate::conditions::{CALL_P99, CONDITIONS, Condition, FINDING};

/// What is always there to be done: a line among the messages.
pub const LOG: &str = "log";

/// A limit is kept again from this part of it on, unless the file says from when on.
const KEPT_AGAIN: f64 = 0.9;
/// And for so long, unless the file says for how long.
const KEPT_FOR: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub alerts: Vec<Alert>,
    pub actions: Vec<Action>,
}

/// A limit.
#[derive(Clone, Debug)]
pub struct Alert {
    pub name: String,
    pub condition: &'static Condition,
    pub above: f64,
    /// For how long it is above before the alert fires.
    pub lasting: Duration,
    /// The alert is over when it was below this for so long.
    pub until_below: f64,
    pub until_after: Duration,
    /// Only processes with this name; a star at its end stands for the rest.
    pub process: Option<String>,
    /// Only this function or cause; the same.
    pub what: Option<String>,
    /// Of findings, those that are at least so grave.
    pub severity: Severity,
    /// Names of actions.
    pub actions: Vec<String>,
}

/// What can be done when an alert fires, and when it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub name: String,
    pub deed: Deed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Adds a line of JSON to a file.
    Json(PathBuf),
    /// Posts it to an address.
    Webhook(String),
    /// Runs a command that reads it from its input.
    Command(Vec<String>),
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesError {
    pub line: usize,
    pub column: usize,
    pub message: String,
}

impl std::fmt::Display for RulesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for RulesError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    alert: Vec<Spanned<AlertTable>>,
    #[serde(default)]
    action: Vec<Spanned<ActionTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertTable {
    name: Spanned<String>,
    when: Spanned<String>,
    above: Option<Spanned<String>>,
    #[serde(rename = "for")]
    lasting: Option<Spanned<String>>,
    until_below: Option<Spanned<String>>,
    until_after: Option<Spanned<String>>,
    process: Option<String>,
    function: Option<Spanned<String>>,
    cause: Option<Spanned<String>>,
    severity: Option<Spanned<Severity>>,
    #[serde(default)]
    actions: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionTable {
    name: Spanned<String>,
    json: Option<PathBuf>,
    webhook: Option<Spanned<String>>,
    command: Option<Spanned<Vec<String>>>,
}

/// A place in the text, and what is wrong there.
type Wrong = (usize, String);

impl Rules {
    pub fn parse(text: &str) -> Result<Self, RulesError> {
        let file: File = toml::from_str(text).map_err(|error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start);
            located(text, (at, error.message().to_owned()))
        })?;
        file.checked().map_err(|wrong| located(text, wrong))
    }
}

fn located(text: &str, (at, message): Wrong) -> RulesError {
    let before = text.get(..at.min(text.len())).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before[line_start..].chars().count() + 1;
    RulesError { line: before.matches('\n').count() + 1, column, message }
}

fn wrong<T>(place: &Spanned<T>, message: impl Into<String>) -> Wrong {
    (place.span().start, message.into())
}

impl File {
    fn checked(self) -> Result<Rules, Wrong> {
        let mut rules = Rules::default();
        for table in self.action {
            let action = action(table)?;
            rules.actions.push(action);
        }
        for table in self.alert {
            let alert = alert(table.into_inner(), &rules)?;
            rules.alerts.push(alert);
        }
        if rules.alerts.is_empty() {
            return Err((0, "there is no alert in the file; one begins with [[alert]]".to_owned()));
        }
        Ok(rules)
    }
}

fn action(table: Spanned<ActionTable>) -> Result<Action, Wrong> {
    let at = table.span().start;
    let ActionTable { name, json, webhook, command } = table.into_inner();
    if name.get_ref() == LOG || name.get_ref().is_empty() {
        return Err(wrong(&name, format!("an action needs a name of its own; {LOG:?} is always there")));
    }
    let deed = match (json, webhook, command) {
        (Some(file), None, None) => Deed::Json(file),
        (None, Some(address), None) => {
            let is_address = |start: &str| address.get_ref().strip_prefix(start).is_some_and(|rest| !rest.is_empty());
            if !is_address("http://") && !is_address("https://") {
                return Err(wrong(&address, "a webhook is an address that begins with http:// or https://"));
            }
            Deed::Webhook(address.into_inner())
        }
        (None, None, Some(command)) => {
            if command.get_ref().is_empty() {
                return Err(wrong(&command, "a command is a program and its arguments"));
            }
            Deed::Command(command.into_inner())
        }
        _ => return Err((at, "an action has exactly one of json, webhook and command".to_owned())),
    };
    Ok(Action { name: name.into_inner(), deed })
}

fn alert(table: AlertTable, rules: &Rules) -> Result<Alert, Wrong> {
    let AlertTable { name, when, above, lasting, until_below, until_after, .. } = &table;
    if rules.alerts.iter().any(|known| known.name == *name.get_ref()) {
        return Err(wrong(name, format!("there are two alerts called {:?}", name.get_ref())));
    }
    let known = || CONDITIONS.iter().map(|one| one.name).collect::<Vec<_>>().join(", ");
    let condition = CONDITIONS.iter().copied().find(|one| one.name == when.get_ref());
    let condition =
        condition.ok_or_else(|| wrong(when, format!("{:?} is not measured; there are {}", when.get_ref(), known())))?;
    let limit = |text: &Spanned<String>| condition.unit.parse(text.get_ref()).map_err(|why| wrong(text, why));
    let above = match above {
        Some(above) => limit(above)?,
        None if *condition == FINDING => 0.0,
        None => {
            return Err(wrong(
                when,
                format!("{} needs a limit: above = {:?}", condition.name, condition.unit.example()),
            ));
        }
    };
    let below = until_below.as_ref().map(|text| limit(text).map(|limit| (text, limit))).transpose()?;
    if let Some((text, limit)) = below
        && limit > above
    {
        return Err(wrong(text, "the alert would be over before it fires: until_below is more than above"));
    }
    let time = |text: &Option<Spanned<String>>, otherwise| match text {
        Some(text) => units::parse_duration(text.get_ref()).map_err(|why| wrong(text, why)),
        None => Ok(otherwise),
    };
    let only = |part: &Option<Spanned<String>>, of: &Condition, name: &str| match part {
        Some(part) if condition != of => Err(wrong(part, format!("only {} has a {name}", of.name))),
        part => Ok(part.as_ref().map(|part| part.get_ref().clone())),
    };
    if let (Some(severity), true) = (&table.severity, *condition != FINDING) {
        return Err(wrong(severity, format!("only {} has a severity", FINDING.name)));
    }
    let is_known = |name: &str| name == LOG || rules.actions.iter().any(|action| action.name == name);
    if let Some(unknown) = table.actions.iter().find(|name| !is_known(name.get_ref())) {
        return Err(wrong(unknown, format!("there is no action called {:?}", unknown.get_ref())));
    }
    let actions: Vec<String> = table.actions.iter().map(|name| name.get_ref().clone()).collect();
    Ok(Alert {
        condition,
        above,
        lasting: time(lasting, Duration::ZERO)?,
        until_below: below.map_or(above * KEPT_AGAIN, |(_, limit)| limit),
        until_after: time(until_after, KEPT_FOR)?,
        what: only(&table.function, &CALL_P99, "function")?.or(only(&table.cause, &FINDING, "cause")?),
        severity: table.severity.as_ref().map_or(Severity::High, |severity| *severity.get_ref()),
        actions: if actions.is_empty() { vec![LOG.to_owned()] } else { actions },
        process: table.process.clone(),
        name: table.name.into_inner(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_with_what_it_leaves_out() {
        let text = r#"
            [[action]]
            name = "pager"
            webhook = "https://pager.example/hook"

            [[alert]]
            name = "memory"
            when = "process-memory"
            above = "20GiB"
            for = "5s"
            process = "python*"
            actions = ["log", "pager"]

            [[alert]]
            name = "locks"
            when = "finding"
            cause = "lock-wait"
            severity = "medium"
        "#;
        let rules = Rules::parse(text).unwrap();
        let [memory, locks] = &rules.alerts[..] else { panic!("{rules:?}") };
        assert_eq!((memory.above, memory.lasting), (20.0 * f64::from(1 << 30), Duration::from_secs(5)));
        assert_eq!((memory.until_below, memory.until_after), (18.0 * f64::from(1 << 30), KEPT_FOR));
        assert_eq!(memory.actions, ["log", "pager"]);
        assert_eq!((locks.what.as_deref(), locks.severity), (Some("lock-wait"), Severity::Medium));
        assert_eq!((locks.actions.as_slice(), locks.above), (["log".to_owned()].as_slice(), 0.0));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_column() {
        let alert = "[[alert]]\nname = \"a\"\n";
        let cases = [
            ("[[alert]\n", (1, 9), "]"),
            ("", (1, 1), "no alert"),
            ("[[alert]]\nname = \"a\"\nwen = \"off-cpu\"\n", (3, 1), "unknown field `wen`"),
            (&format!("{alert}when = \"weather\"\nabove = \"1%\"\n"), (3, 8), "\"weather\" is not measured"),
            (&format!("{alert}when = \"off-cpu\"\n"), (3, 8), "above = \"30%\""),
            (&format!("{alert}when = \"off-cpu\"\nabove = \"5ms\"\n"), (4, 9), "is no share"),
            (&format!("{alert}when = \"off-cpu\"\nabove = \"5%\"\nuntil_below = \"6%\"\n"), (5, 15), "would be over"),
            (&format!("{alert}when = \"off-cpu\"\nabove = \"5%\"\nfunction = \"x\"\n"), (5, 12), "only call-p99"),
            (&format!("{alert}when = \"off-cpu\"\nabove = \"5%\"\nseverity = \"low\"\n"), (5, 12), "only finding"),
            (&format!("{alert}when = \"finding\"\nactions = [\"page\"]\n"), (4, 12), "no action called \"page\""),
            (&format!("{alert}when = \"finding\"\n{alert}when = \"finding\"\n"), (5, 8), "two alerts"),
            ("[[action]]\nname = \"p\"\nwebhook = \"pager\"\n", (3, 11), "http://"),
            ("[[action]]\nname = \"p\"\n", (1, 1), "exactly one"),
            ("[[action]]\nname = \"p\"\ncommand = []\n", (3, 11), "a program"),
        ];
        for (text, (line, column), what) in cases {
            let error = Rules::parse(text).unwrap_err();
            assert_eq!((error.line, error.column), (line, column), "{text}{error}");
            assert!(error.message.contains(what), "{text}{error}");
        }
    }
}
