//! Questions about calls that need no SQL.

use rusqlite::types::Value as Parameter;

/// Which calls to return. Absent means any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Calls that start at or after this time.
    pub since_ns: Option<u64>,
    /// Calls that start before this time.
    pub until_ns: Option<u64>,
    /// The function, by its own name or by the runtime's, with or without a version such as `_v2`.
    pub op: Option<String>,
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    pub min_duration_ns: Option<u64>,
}

impl Filter {
    /// Columns that name the function of a call, and of the call around a wait.
    pub(crate) const CALL_NAMES: &[&str] = &["op", "runtime_op"];
    pub(crate) const WAIT_NAMES: &[&str] = &["op"];

    /// The statement and its parameters. `known_ops` are the names of functions that the trace knows.
    pub(crate) fn to_sql(&self, known_ops: &[String]) -> (String, Vec<Parameter>) {
        let (conditions, parameters) = self.conditions(Self::CALL_NAMES, known_ops);
        (format!("SELECT * FROM cuda_events WHERE {conditions} ORDER BY timestamp_ns"), parameters)
    }

    /// What the rows of a view have to be like, where one of the `names` columns has the function's name.
    pub(crate) fn conditions(&self, names: &[&str], known_ops: &[String]) -> (String, Vec<Parameter>) {
        let mut conditions = Vec::new();
        let mut parameters = Vec::new();
        let mut number = |condition: &str, value: Option<u64>| {
            if let Some(value) = value {
                conditions.push(condition.to_owned());
                parameters.push(Parameter::Integer(i64::try_from(value).unwrap_or(i64::MAX)));
            }
        };
        number("timestamp_ns >= ?", self.since_ns);
        number("timestamp_ns < ?", self.until_ns);
        number("pid = ?", self.pid.map(u64::from));
        number("tid = ?", self.tid.map(u64::from));
        number("duration_ns >= ?", self.min_duration_ns);
        if let Some(op) = &self.op {
            let known: Vec<&String> = known_ops.iter().filter(|known| is_same(known, op)).collect();
            let marks = vec!["?"; known.len()].join(",");
            let is_named: Vec<String> = names.iter().map(|column| format!("{column} IN ({marks})")).collect();
            conditions.push(format!("({})", is_named.join(" OR ")));
            parameters.extend(names.iter().flat_map(|_| &known).map(|name| Parameter::Text((*name).clone())));
        }
        let conditions = if conditions.is_empty() { "1".to_owned() } else { conditions.join(" AND ") };
        (conditions, parameters)
    }
}

/// Whether both are names of one function.
pub(crate) fn is_same(name: &str, other: &str) -> bool {
    unversioned(name) == unversioned(other)
}

/// A function's name without `_v2` and without the suffixes of the per-thread stream variants.
fn unversioned(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, version)) if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_stream_variants_are_the_same_function() {
        for name in ["cuMemAlloc", "cuMemAlloc_v2", "cuMemAlloc_v3020", "cuMemAlloc_v2_ptsz", "cuMemAlloc_ptds"] {
            assert_eq!(unversioned(name), "cuMemAlloc");
        }
        assert_eq!(unversioned("cuda_vector"), "cuda_vector");
        assert_eq!(unversioned("name_v"), "name_v");
    }

    #[test]
    fn a_hostile_name_is_only_ever_compared() {
        let filter = Filter { op: Some("x') OR 1 --".into()), ..Filter::default() };
        let (sql, parameters) = filter.to_sql(&["x') OR 1 --".into()]);
        assert!(!sql.contains("OR 1"));
        assert_eq!(parameters.len(), 2);
    }
}
