//! Generated documents: each is a pure function of the code or of kept results, so that a test can tell when one is
//! stale.

mod performance;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Every generated document.
const DOCUMENTS: &[Document] = &[
    Document { path: "docs/schema.md", render: || Ok(gpuwhy_store::schema_markdown()) },
    Document { path: "docs/performance.md", render: performance::render },
];

struct Document {
    path: &'static str,
    render: fn() -> Result<String>,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn run(check: bool) -> Result<()> {
    let mut stale = Vec::new();
    for document in DOCUMENTS {
        let fresh = (document.render)().with_context(|| format!("render {}", document.path))?;
        let path = root().join(document.path);
        if std::fs::read_to_string(&path).is_ok_and(|old| old == fresh) {
            continue;
        }
        if check {
            stale.push(document.path);
        } else {
            std::fs::write(&path, fresh).with_context(|| format!("write {}", document.path))?;
            println!("wrote {}", document.path);
        }
    }
    if !stale.is_empty() {
        bail!("stale: {}; run `cargo run -p xtask -- docs`", stale.join(", "));
    }
    Ok(())
}
