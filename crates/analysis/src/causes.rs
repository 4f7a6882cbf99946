//! The page of all causes, made of the rules' own doc comments.

use crate::rules::RULES;

const INTRODUCTION: &str = "# Causes

What `gpuwhy explain` can find. Each cause says how it is detected, when it is not reported, and what to do about it.
Shares are of the waiting thread's own time: a finding is high from 20 % on, medium from 5 %, low from 1 %.
";

/// The page in Markdown, in the order of the rules.
pub fn causes_markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for rule in RULES {
        page.push_str(&format!("\n## `{}`\n\n", rule.cause));
        for line in doc_lines(rule.page) {
            page.push_str(&lowered(line));
            page.push('\n');
        }
    }
    page
}

fn doc_lines(source: &str) -> impl Iterator<Item = &str> {
    let lines = source.lines().take_while(|line| line.starts_with("//!"));
    lines.map(|line| line.trim_start_matches("//!").trim_start_matches(' '))
}

/// A heading of a rule's page is below the rule's own.
fn lowered(line: &str) -> String {
    if line.starts_with('#') { format!("##{line}") } else { line.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// What every page must say.
    const HEADINGS: &[&str] = &["# How it is detected", "# When it is not reported", "# How to fix it"];

    #[test]
    fn every_cause_has_one_rule_and_its_page_says_what_a_page_must_say() {
        let causes: BTreeSet<&str> = RULES.iter().map(|rule| rule.cause).collect();
        assert_eq!(causes.len(), RULES.len());
        for rule in RULES {
            let lines: Vec<&str> = doc_lines(rule.page).collect();
            for heading in HEADINGS {
                assert!(lines.contains(heading), "{} lacks {heading:?}", rule.cause);
            }
        }
    }

    #[test]
    fn what_a_rule_explains_away_is_a_cause() {
        for explained in RULES.iter().flat_map(|rule| rule.explains_away) {
            assert!(RULES.iter().any(|rule| rule.cause == *explained), "{explained}");
        }
    }

    #[test]
    fn the_page_has_a_section_for_every_cause() {
        let page = causes_markdown();
        for rule in RULES {
            assert!(page.contains(&format!("\n## `{}`\n", rule.cause)), "{}", rule.cause);
        }
        assert!(page.contains("\n### How to fix it\n") && !page.contains("\n# How"));
    }
}
