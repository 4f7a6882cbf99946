//! Generated documents are as fresh as what they are generated from.
//!
//! As a test, the check is built together with all the others. A `cargo run -p xtask` of its own would want other features of
//! their libraries, and build forty of them again.

use std::process::Command;

#[test]
fn generated_documents_are_fresh() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(["docs", "--check"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
