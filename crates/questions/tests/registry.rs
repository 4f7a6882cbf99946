//! What holds for every question, whatever it asks: doors rely on it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use gpuwhy_analysis::rules::RULES;
use gpuwhy_questions::{AskError, Asked, NoHost, QUESTIONS, Question, Traces, find};
use serde_json::{Value, json};

/// A real recording: a program whose input comes too slowly from a disk.
fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpuwhy/data/demo.trace")
}

fn ask(question: &Question, parameters: Value) -> Result<Value, AskError> {
    let traces = Traces::new([demo()]);
    let asked = Asked::new(&traces, &NoHost);
    question.ask(parameters, &asked)
}

/// Parameters that a question cannot do without.
fn needed(question: &Question) -> Value {
    match question.name {
        "sql" => json!({"sql": "SELECT op, duration_ns, NULL, 1.5, x'00' FROM cuda_events LIMIT 3"}),
        "record" => json!({"ref": a_ref()}),
        _ => json!({}),
    }
}

fn a_ref() -> String {
    let findings = QUESTIONS.iter().find(|question| question.name == "findings").unwrap();
    let answer = ask(findings, json!({})).unwrap();
    let cited = answer.pointer("/findings/0/chain").and_then(Value::as_array).unwrap();
    let refs = cited.iter().flat_map(|edge| edge["refs"].as_array().unwrap());
    refs.filter_map(Value::as_str).next().unwrap().to_owned()
}

/// Those that a trace can answer; the others need a host.
fn answerable() -> impl Iterator<Item = &'static Question> {
    QUESTIONS.iter().filter(|question| !matches!(ask(question, needed(question)), Err(AskError::NotHere { .. })))
}

#[test]
fn every_question_says_in_full_sentences_what_it_answers() {
    for question in QUESTIONS {
        let about = question.about();
        assert!(about.len() > 40 && about.trim_end().ends_with('.'), "{}: {about:?}", question.name);
    }
}

#[test]
fn the_schema_of_findings_lists_every_cause() {
    let schema = find("findings").unwrap().output().to_value();
    let causes = schema.pointer("/properties/findings/items/properties/cause/enum").unwrap().as_array().unwrap();
    let expected: Vec<&str> = RULES.iter().map(|rule| rule.cause).collect();
    assert_eq!(causes.iter().filter_map(Value::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn names_and_aliases_are_words_and_no_two_questions_share_one() {
    let mut names: Vec<&str> = QUESTIONS.iter().flat_map(|one| one.aliases.iter().copied().chain([one.name])).collect();
    let is_word = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    assert!(names.iter().all(is_word), "{names:?}");
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn every_parameter_is_described_and_the_answer_is_an_object() {
    for question in QUESTIONS {
        let input = question.input().to_value();
        assert_eq!(input["type"], "object", "{}", question.name);
        let properties = input["properties"].as_object().unwrap();
        for (name, property) in properties {
            let description = property["description"].as_str().unwrap_or_default();
            assert!(description.len() > 10, "{}.{name} is not described", question.name);
        }
        assert_eq!(question.output().to_value()["type"], "object", "{}", question.name);
    }
}

#[test]
fn every_answer_has_the_fields_that_the_question_promises() {
    let mut answered = 0;
    for question in answerable() {
        let answer = ask(question, needed(question)).unwrap();
        let schema = question.output().to_value();
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            assert!(answer.get(name).is_some(), "{}.{name}", question.name);
        }
        answered += 1;
    }
    assert!(answered >= QUESTIONS.len() - 4, "only {answered} questions were asked");
}

#[test]
fn unknown_parameters_are_refused() {
    for question in QUESTIONS {
        let error = ask(question, json!({"no_such_parameter": 1})).unwrap_err();
        assert_eq!(error.code(), "bad_parameters", "{}", question.name);
    }
}

#[test]
fn the_command_line_gives_the_parameters_that_the_schema_names() {
    for question in QUESTIONS {
        let command = question.command();
        let schema = question.input().to_value();
        let known = schema["properties"].as_object().unwrap();
        for argument in command.get_arguments().filter(|argument| argument.get_id() != "help") {
            assert!(known.contains_key(argument.get_id().as_str()), "{}: {}", question.name, argument.get_id());
        }
    }
}
