//! What the doors say about each question: name, title, what it answers, its parameters and its answer. MCP lists it as
//! tools, HTTP as paths.

use std::sync::Arc;

use gpuwhy_questions::Question;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::Value;

/// Every question under its name, then again under the names that published recipes use.
pub fn tools(questions: &'static [Question]) -> Vec<Tool> {
    let named = questions.iter().map(|question| tool(question, question.name));
    let aliases = questions.iter().flat_map(|question| question.aliases.iter().map(|alias| tool(question, alias)));
    named.chain(aliases).collect()
}

fn tool(question: &Question, name: &'static str) -> Tool {
    let about = match name == question.name {
        true => question.about(),
        false => format!("The same as {}. {}", question.name, question.about()),
    };
    let title = title(question.name);
    let annotations = ToolAnnotations::from_raw(
        Some(title.clone()),
        Some(!question.acts),
        Some(false),
        Some(!question.acts),
        Some(false),
    );
    Tool::new(name, about, Arc::new(input(question)))
        .with_title(title)
        .with_raw_output_schema(Arc::new(output(question)))
        .with_annotations(annotations)
}

/// `slow_calls` as people read it.
fn title(name: &str) -> String {
    let words = name.replace('_', " ");
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The schema of its parameters; one that it does not have is refused.
pub fn input(question: &Question) -> JsonObject {
    let mut schema = object(question.input().to_value());
    schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    schema
}

pub fn output(question: &Question) -> JsonObject {
    object(question.output().to_value())
}

fn object(schema: Value) -> JsonObject {
    match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_questions::{FLEET_QUESTIONS, QUESTIONS};

    use super::*;

    #[test]
    fn every_tool_has_a_name_of_its_own_and_schemas_of_objects() {
        [QUESTIONS, FLEET_QUESTIONS].into_iter().for_each(has_names_and_schemas);
    }

    fn has_names_and_schemas(questions: &'static [Question]) {
        let tools = tools(questions);
        let mut names: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), tools.len());
        for tool in tools {
            let output = tool.output_schema.unwrap();
            assert_eq!(tool.input_schema.get("type"), Some(&"object".into()), "{}", tool.name);
            assert_eq!(output.get("type"), Some(&"object".into()), "{}", tool.name);
            assert!(tool.description.unwrap().len() > 20, "{}", tool.name);
        }
    }

    #[test]
    fn only_what_acts_is_not_said_to_be_read_only() {
        for question in QUESTIONS {
            let annotations = tool(question, question.name).annotations.unwrap();
            assert_eq!(annotations.read_only_hint, Some(!question.acts), "{}", question.name);
        }
    }
}
