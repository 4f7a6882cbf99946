//! Generated documents: each is a pure function of the code or of kept results, so that a test can tell when one is
//! stale. Results themselves are too old when there was a release between what was measured and what is here.

mod accuracy;
mod age;
mod alerts;
mod answers;
mod fleet;
mod metrics;
mod overhead;
mod performance;
mod plot;
mod questions;
mod report;
mod results;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

pub use self::results::{load as load_results, save as save_results};

/// Every generated document.
const DOCUMENTS: &[Document] = &[
    Document { path: "docs/schema.md", render: || Ok(Some(gpuwhy_store::schema_markdown())) },
    Document { path: "docs/causes.md", render: || Ok(Some(gpuwhy_analysis::causes_markdown())) },
    Document { path: "docs/questions.md", render: questions::render },
    Document { path: "docs/fleet.md", render: fleet::render },
    Document { path: "docs/alerts.md", render: alerts::render },
    Document { path: "docs/metrics.md", render: metrics::render },
    Document { path: "web/src/answers.ts", render: answers::render },
    Document { path: "docs/accuracy.md", render: accuracy::render },
    Document { path: "docs/performance.md", render: performance::render },
    Document { path: "docs/overhead.md", render: overhead::render },
    Document { path: "docs/overhead-by-rate.svg", render: overhead::by_rate },
    Document { path: "docs/overhead-estimated.svg", render: overhead::estimated },
    Document { path: "docs/results/report.json", render: report::render },
];

struct Document {
    path: &'static str,
    /// Nothing while the results it is made from do not exist.
    render: fn() -> Result<Option<String>>,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn run(check: bool) -> Result<()> {
    let mut stale = Vec::new();
    for document in DOCUMENTS {
        let Some(fresh) = (document.render)().with_context(|| format!("render {}", document.path))? else {
            continue;
        };
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
    if check { results::check_age() } else { Ok(()) }
}
