//! Whether a value is what a JSON schema says, as far as the schemas of questions go.

use serde_json::Value;

pub fn check(value: &Value, schema: &Value, root: &Value, path: &str) -> Result<(), String> {
    let Some(says) = schema.as_object() else { return Ok(()) };
    if let Some(target) = says.get("$ref").and_then(Value::as_str) {
        let target = root.pointer(target.trim_start_matches('#')).ok_or(format!("{path}: no {target}"))?;
        check(value, target, root, path)?;
    }
    for alternatives in ["anyOf", "oneOf"].iter().filter_map(|name| says.get(*name)?.as_array()) {
        let tried: Vec<_> = alternatives.iter().map(|one| check(value, one, root, path)).collect();
        if tried.iter().all(Result::is_err) {
            return Err(format!("{path}: none of {alternatives:?} fits {value}"));
        }
    }
    if let Some(kinds) = says.get("type")
        && !list(kinds).iter().any(|kind| is(value, kind.as_str().unwrap_or_default()))
    {
        return Err(format!("{path}: {value} is not of type {kinds}"));
    }
    if says.get("const").is_some_and(|only| only != value)
        || says.get("enum").is_some_and(|all| !list(all).contains(value))
    {
        return Err(format!("{path}: {value} is not {schema}"));
    }
    members(value, schema, root, path)
}

fn members(value: &Value, schema: &Value, root: &Value, path: &str) -> Result<(), String> {
    if let Some(object) = value.as_object() {
        for name in list(&schema["required"]) {
            let name = name.as_str().unwrap_or_default();
            object.get(name).ok_or(format!("{path}: {name} is missing"))?;
        }
        for (name, member) in object {
            match schema["properties"].get(name) {
                Some(says) => check(member, says, root, &format!("{path}.{name}"))?,
                None => check(member, &schema["additionalProperties"], root, &format!("{path}.{name}"))?,
            }
        }
    }
    let items = value.as_array().filter(|_| schema["items"].is_object());
    items.into_iter().flatten().try_for_each(|item| check(item, &schema["items"], root, &format!("{path}[]")))
}

fn list(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(all) => all.clone(),
        one => vec![one.clone()],
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => false,
    }
}
