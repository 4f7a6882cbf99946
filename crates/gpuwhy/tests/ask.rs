//! `gpuwhy ask`: the terminal is a door like the others.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use gpuwhy_questions::{Asked, NoHost, QUESTIONS, Question, Traces};
use serde_json::{Value, json};
use support::{gpuwhy, output, small_trace};

/// What a question cannot be asked without, as JSON and as words on the command line.
fn needed(question: &Question) -> (Value, &'static [&'static str]) {
    match question.name {
        "sql" => (json!({"sql": "SELECT * FROM cuda_events"}), &["SELECT * FROM cuda_events"]),
        "record" => (json!({"ref": "cuda:1"}), &["cuda:1"]),
        _ => (json!({}), &[]),
    }
}

#[test]
fn every_question_has_the_same_answer_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gpuwhy-test.db");
    small_trace::write(&file);
    let traces = Traces::new([file.clone()]);
    for question in QUESTIONS.iter().filter(|question| !question.acts && question.name != "check") {
        let (parameters, words) = needed(question);
        let asked = Asked::new(&traces, &NoHost);
        let expected = question.ask(parameters, &asked);
        let arguments = [&["ask", "--json", "--db", file.to_str().unwrap(), question.name], words].concat();
        let (code, out, err) = output(gpuwhy(&arguments));
        match expected {
            Ok(answer) => {
                assert_eq!((code, serde_json::from_str::<Value>(&out).unwrap()), (0, answer), "{}", question.name);
            }
            Err(error) => assert!(code == 1 && err.contains(&error.to_string()), "{}: {err}", question.name),
        }
        let (code, page, _) = output(gpuwhy(&[&arguments[..1], &arguments[2..]].concat()));
        assert!(code != 0 || !page.trim().is_empty(), "{} has a page for people", question.name);
    }
}

#[test]
fn questions_go_by_the_names_that_recipes_use() {
    let (code, out, _) = output(gpuwhy(&["ask", "--help"]));
    assert_eq!(code, 0);
    for question in QUESTIONS {
        assert!(out.contains(question.name), "{}", question.name);
        assert!(question.aliases.iter().all(|alias| out.contains(alias)), "{}", question.name);
    }
}

#[test]
fn a_wrong_question_or_parameter_is_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gpuwhy-test.db");
    small_trace::write(&file);
    let file = file.to_str().unwrap();
    for (arguments, code, words) in [
        (vec!["ask", "why"], 2, "unrecognized subcommand"),
        (vec!["ask", "slow_calls", "--db", file, "--limit", "0"], 2, "--limit"),
        (vec!["ask", "slow_calls", "--db", file, "--after", "there"], 1, "after: it is not the `next` of an answer"),
        (vec!["ask", "findings", "--db", file, "--from", "20", "--to", "10"], 1, "from: it is not before `to`"),
        (vec!["ask", "findings", "--db", file, "--trace", "other.db"], 1, "no trace \"other.db\" is served"),
        (vec!["ask", "record", "--db", file, "cuda:1"], 1, "cuda:1"),
        (vec!["ask", "sql", "--db", file, "DELETE FROM calls"], 1, "only reading is allowed"),
        (vec!["ask", "findings", "--db", "/nowhere.db"], 1, "there is no file"),
    ] {
        let (exit, _, err) = output(gpuwhy(&arguments));
        assert!(exit == code && err.contains(words), "{arguments:?}: {exit} {err}");
    }
}
