//! Generated documents are as fresh as what they are generated from.
//!
//! This check is a test, so that it is built together with all the others. `cargo run -p xtask` wants other features of
//! the libraries, and would build forty of them again.

use std::process::Command;

#[test]
fn generated_documents_are_fresh() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(["docs", "--check"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
