//! Any answer, for people: what is said once as lines, plain lists as tables, others item by item. Units follow from the
//! fields' names.

use std::borrow::Cow;

use gpuwhy_questions::units::{count, duration, share};
use serde_json::{Map, Value};

use crate::print::{Columns, Width, safe};

pub fn page(answer: &Value, width: Width) -> String {
    let mut text = String::new();
    match answer {
        Value::Object(fields) => object(&mut text, fields, 0, width),
        other => text.push_str(&cell("", other)),
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn object(text: &mut String, fields: &Map<String, Value>, depth: usize, width: Width) {
    let indent = "  ".repeat(depth);
    for (name, value) in fields.iter().filter(|(_, value)| !is_empty(value)) {
        match value {
            Value::Object(inner) => {
                text.push_str(&format!("{indent}{}:\n", safe(name)));
                object(text, inner, depth + 1, width);
            }
            Value::Array(items) if items.iter().all(Value::is_object) => {
                text.push_str(&format!("{indent}{}:\n", safe(name)));
                let is_plain = items.iter().filter_map(Value::as_object).all(is_plain);
                if is_plain { table(text, items, depth + 1, width) } else { blocks(text, items, depth + 1, width) }
            }
            other => text.push_str(&format!("{indent}{}: {}\n", safe(name), safe(&cell(name, other)))),
        }
    }
}

/// Whether every field fits into a cell.
fn is_plain(fields: &Map<String, Value>) -> bool {
    fields.values().all(|value| match value {
        Value::Object(_) => false,
        Value::Array(items) => !items.iter().any(Value::is_object),
        _ => true,
    })
}

fn blocks(text: &mut String, items: &[Value], depth: usize, width: Width) {
    for fields in items.iter().filter_map(Value::as_object) {
        let mut block = String::new();
        object(&mut block, fields, depth + 1, width);
        let indent = "  ".repeat(depth);
        text.push_str(&format!("{indent}- {}", block.trim_start()));
    }
}

/// Columns are the fields that any row has, in the order in which they appear.
fn table(text: &mut String, rows: &[Value], depth: usize, width: Width) {
    let mut names: Vec<&str> = Vec::new();
    for (name, value) in rows.iter().filter_map(Value::as_object).flatten() {
        if !is_empty(value) && !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let mut columns = Columns::new(names.iter().copied());
    for row in rows {
        columns.row(names.iter().map(|name| Cow::Owned(cell(name, &row[*name]))));
    }
    let is_number = |name: &str| rows.iter().all(|row| row[name].is_number() || row[name].is_null());
    columns.align_right((0..names.len()).filter(|at| is_number(names[*at])));
    let indent = "  ".repeat(depth);
    for line in columns.text(width.beside(indent.len())).lines() {
        text.push_str(&format!("{indent}{line}\n"));
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// A larger number of nanoseconds is a moment and not a length. It is printed as it is, so that it can be given back.
const MOMENTS_NS: u64 = 1_000_000_000_000_000_000;

fn cell(name: &str, value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) => self::number(name, number),
        // Rows of numbers are for drawing.
        Value::Array(items) if items.iter().any(Value::is_array) => format!("{} items", count(items.len() as u64)),
        Value::Array(items) => items.iter().map(|item| cell(name, item)).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let said = fields.iter().filter(|(_, value)| !is_empty(value));
            said.map(|(name, value)| format!("{name} {}", cell(name, value))).collect::<Vec<_>>().join(", ")
        }
        Value::Bool(is) => is.to_string(),
    }
}

fn number(name: &str, number: &serde_json::Number) -> String {
    let whole = number.as_u64();
    match (name, whole) {
        (_, Some(ns)) if (name == "ns" || name.ends_with("_ns")) && ns < MOMENTS_NS => duration(ns),
        _ if name.ends_with("share") || name.ends_with("fraction") => share(number.as_f64().unwrap_or(0.0)),
        (_, Some(bytes)) if name.ends_with("bytes") => size(bytes),
        (_, Some(whole)) if name.ends_with("count") || name.ends_with("calls") => count(whole),
        _ => number.to_string(),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_lines_and_tables_with_units() {
        let answer = json!({
            "window": {"from_ns": 1_700_000_000_000_000_005u64},
            "calls": [{"op": "cuLaunchKernel", "duration_ns": 1500, "line": null}, {"op": "a\u{1b}[31m", "duration_ns": 7}],
            "next": null,
        });
        let page = page(&answer, Width::ANY);
        assert!(page.contains("window:\n  from_ns: 1700000000000000005\n"), "{page}");
        assert!(page.contains("1.50 us") && page.contains("a\\u{1b}[31m"), "{page}");
        assert!(!page.contains("next") && !page.contains("line"), "{page}");
    }

    #[test]
    fn items_with_parts_of_their_own_are_told_one_by_one() {
        let answer = json!({"findings": [{"id": "f1", "impact": {"lost_ns": 1500}}, {"id": "f2", "impact": {}}]});
        assert_eq!(
            page(&answer, Width::ANY),
            "findings:\n  - id: f1\n    impact:\n      lost_ns: 1.50 us\n  - id: f2\n"
        );
    }
}
