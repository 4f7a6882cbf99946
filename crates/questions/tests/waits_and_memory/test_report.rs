//! What the accuracy and overhead bench last said.

use serde_json::json;

use crate::support::*;

#[test]
fn the_report_tells_accuracy_and_overhead_without_a_trace() {
    let report = ask(std::path::Path::new("none"), "get_test_report", json!({})).unwrap();
    let promises = report["promises"].as_array().unwrap();
    for part in ["accuracy", "overhead"] {
        let of_part: Vec<_> = promises.iter().filter(|promise| promise["part"] == json!(part)).collect();
        assert!(of_part.iter().any(|promise| promise["is_kept"].is_boolean()), "{part}: {of_part:#?}");
    }
    for field in ["what", "value", "machine", "command"] {
        assert!(promises.iter().all(|promise| promise[field].as_str().is_some_and(|text| !text.is_empty())), "{field}");
    }
}
