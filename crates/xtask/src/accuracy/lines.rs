//! Was the right line of the source named?

use gpuwhy_model::{Place, Role};
use gpuwhy_testbed::{Scenario, SourceLine};

/// What a finding's places say about the lines that are to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineVerdict {
    /// The first place of the culprit, or the first of all, is such a line.
    pub is_first: bool,
    /// Some place is: a line inside of a function that the blamed line calls comes before it.
    pub is_anywhere: bool,
}

/// The lines of which one should be named: those to blame, or where nothing could be changed those where the victim waits.
pub fn expected(scenario: &Scenario) -> Vec<SourceLine> {
    let blamed = scenario.blamed_lines();
    if blamed.is_empty() { scenario.victim_lines() } else { blamed }
}

/// Nothing where no line is expected.
pub fn judge(expected: &[SourceLine], places: &[Place]) -> Option<LineVerdict> {
    if expected.is_empty() {
        return None;
    }
    let is_expected = |place: &Place| expected.iter().any(|line| is_at(place, line));
    let of_culprit = places.iter().find(|place| place.role == Role::Culprit);
    let is_first = places.first().into_iter().chain(of_culprit).any(is_expected);
    Some(LineVerdict { is_first, is_anywhere: places.iter().any(is_expected) })
}

fn is_at(place: &Place, line: &SourceLine) -> bool {
    file_name(place) == line.file && place.line == Some(line.line)
}

fn file_name(place: &Place) -> &str {
    place.file.rsplit('/').next().unwrap_or_default()
}

/// Each place in a few words, without the folders of the machine it was seen on.
pub fn words(places: &[Place]) -> Vec<String> {
    let word = |place: &Place| {
        let line = place.line.map_or_else(String::new, |line| format!(":{line}"));
        let function = place.function.as_deref().unwrap_or("?");
        format!("{} {}{line} {function}", place.role.as_str(), file_name(place))
    };
    places.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_model::PlaceKind;

    const BLAMED: SourceLine = SourceLine { file: "loader.c", line: 7, text: "work();" };

    fn place(file: &str, line: u32, role: Role) -> Place {
        Place { kind: PlaceKind::Native, file: file.into(), line: Some(line), function: Some("f".into()), role }
    }

    fn check(places: &[Place], is_first: bool, is_anywhere: bool) {
        assert_eq!(judge(&[BLAMED], places), Some(LineVerdict { is_first, is_anywhere }), "{places:?}");
    }

    #[test]
    fn the_line_counts_as_first_when_nothing_of_its_role_comes_before_it() {
        let (other, right) = (place("other.c", 1, Role::Victim), place("/src/loader.c", 7, Role::Culprit));
        check(&[right.clone(), other.clone()], true, true);
        check(&[other.clone(), right.clone()], true, true);
        check(&[place("other.c", 1, Role::Culprit), right, other], false, true);
    }

    #[test]
    fn another_line_or_another_file_is_wrong() {
        check(&[place("loader.c", 8, Role::Culprit)], false, false);
        check(&[place("my_loader.c", 7, Role::Culprit)], false, false);
        check(&[Place { line: None, ..place("loader.c", 7, Role::Culprit) }], false, false);
        check(&[], false, false);
    }

    #[test]
    fn nothing_is_said_where_no_line_is_expected() {
        assert_eq!(judge(&[], &[place("loader.c", 7, Role::Culprit)]), None);
    }

    #[test]
    fn where_nothing_can_be_changed_the_place_of_the_wait_is_expected() {
        let find = |name| Scenario::find(name).map(expected).unwrap_or_default();
        assert!(find("long-kernels").iter().all(|line| line.text.contains("victim:")));
        assert!(find("mutex-holder").iter().all(|line| line.text.contains("blame:")));
        assert!(!find("long-kernels").is_empty() && !find("mutex-holder").is_empty());
    }

    #[test]
    fn a_place_is_told_without_folders() {
        assert_eq!(words(&[place("/home/me/loader.c", 7, Role::Victim)]), ["victim loader.c:7 f"]);
    }
}
