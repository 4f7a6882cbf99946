//! What several hosts say, in a few lines each: those that are held up most first, and the first of them in full.

use std::cmp::Reverse;
use std::fmt::Write;

use gpuwhy_model::{Explanation, Finding, Severity};

use super::page::{self, paragraph, points};
use crate::print::safe;

pub fn page(answers: &[(String, Explanation)]) -> String {
    let mut answers: Vec<&(String, Explanation)> = answers.iter().collect();
    answers.sort_by_key(|(_, explanation)| Reverse(explanation.findings.first().map(weight)));
    let mut page = String::new();
    for (node, explanation) in &answers {
        line(&mut page, node, explanation);
    }
    let is_grave = |finding: &Finding| finding.severity > Severity::Low;
    if let Some((node, explanation)) = answers.first().filter(|(_, one)| one.findings.first().is_some_and(is_grave)) {
        let _ = writeln!(page, "\n\x1b[1m{} in full\x1b[0m\n", safe(node));
        page += &page::page(explanation);
    }
    page
}

/// Time of one GPU is as good as that of another: a share of it tells more than a sum.
fn weight(finding: &Finding) -> (Severity, u64) {
    (finding.severity, (finding.impact.share * 1e6) as u64)
}

fn line(page: &mut String, node: &str, explanation: &Explanation) {
    let idle = |gpu: &gpuwhy_model::GpuTime| format!("GPU {} idle {}", gpu.device, points(gpu.idle_share));
    let gpus: Vec<String> = explanation.gpus.iter().map(idle).collect();
    let gpus = if gpus.is_empty() { "no GPU is fed".to_owned() } else { gpus.join(", ") };
    let _ = writeln!(page, "\x1b[1m{}\x1b[0m  {gpus}", safe(node));
    match explanation.findings.first() {
        Some(finding) => {
            let said = format!("{} ({}): {}", finding.cause, finding.severity, finding.summary);
            paragraph(page, "  ", "    ", &said);
        }
        None => paragraph(page, "  ", "    ", "nothing holds it up"),
    }
}
