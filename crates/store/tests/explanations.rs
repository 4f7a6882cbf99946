//! Findings that are kept in the trace they are about.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gpuwhy_store::{KeptExplanation, Options, StoreError, Writer, keep_explanation};
use support::*;

fn kept(json: &str) -> KeptExplanation {
    KeptExplanation { at_ns: START_NS, version: "0.0.7".into(), json: json.into() }
}

const KEPT: &str = "SELECT session_id, at_ns, version, explanation FROM explanations ORDER BY 1";

#[test]
fn each_session_keeps_what_was_found_last() {
    let (_directory, path) = temporary();
    for texts in [["{}", "{1}"], ["{2}", "{3}"]] {
        Writer::open(&path, &session(), &Options::default()).unwrap().finish(&end()).unwrap();
        for text in texts {
            keep_explanation(&path, &kept(text), None).unwrap();
        }
    }
    let expected = ["{1}", "{3}"].map(|text| format!("{START_NS} 0.0.7 {text}"));
    assert_eq!(lines(&path, KEPT), [format!("1 {}", expected[0]), format!("2 {}", expected[1])]);
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_file_that_is_written_or_at_its_cap_is_left_as_it_is() {
    let (_directory, path) = temporary();
    let writer = Writer::open(&path, &session(), &Options::default()).unwrap();
    assert!(matches!(keep_explanation(&path, &kept("{}"), None), Err(StoreError::Busy { .. })));
    writer.finish(&end()).unwrap();
    let size = path.metadata().unwrap().len();
    assert!(matches!(keep_explanation(&path, &kept("{}"), Some(size)), Err(StoreError::CapReached { .. })));
    assert!(lines(&path, KEPT).is_empty());
}

#[test]
fn the_longest_text_that_is_kept_can_be_read_again() {
    let (_directory, path) = temporary();
    Writer::open(&path, &session(), &Options::default()).unwrap().finish(&end()).unwrap();
    keep_explanation(&path, &kept(&"x".repeat(KeptExplanation::MOST_BYTES)), None).unwrap();
    assert_eq!(lines(&path, "SELECT length(explanation) FROM explanations"), [KeptExplanation::MOST_BYTES.to_string()]);
    assert_eq!(lines(&path, KEPT).len(), 1);
}
