//! How many lines each panel gets.

use super::super::state::Panel;

/// What each panel wants and may not go without, where there is room at all.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub threads: usize,
    pub calls: usize,
    pub findings: usize,
}

/// Fewer lines than this are given to one panel only.
const ROOM_FOR_ALL: usize = 12;

/// Lines for threads, calls and findings, each with its title; none for a panel that is not shown.
pub fn share(lines: usize, wanted: Wanted, focus: Panel) -> [usize; 3] {
    let mut given = [0; 3];
    if lines < ROOM_FOR_ALL {
        given[focus as usize] = lines;
        return given;
    }
    let wanted = [wanted.threads, wanted.calls, wanted.findings].map(|content| content.max(1) + 1);
    let mut left = lines;
    // First what each needs to say anything, then what the findings take to be whole, then the one that is looked at.
    let needs = [(Panel::Threads, 3), (Panel::Calls, 3), (Panel::Findings, 4)];
    let useful = [(Panel::Threads, 4), (Panel::Findings, 9), (Panel::Calls, 6)];
    for (panel, most) in needs.into_iter().chain(useful) {
        left -= grow(&mut given, &wanted, panel, most, left);
    }
    for panel in [Panel::Findings, focus, Panel::Threads, Panel::Calls] {
        let most = match panel {
            Panel::Findings if focus != panel => lines / 2,
            Panel::Threads if focus != panel => lines / 3,
            _ => lines,
        };
        left -= grow(&mut given, &wanted, panel, most, left);
    }
    given[Panel::Findings as usize] += left;
    given
}

/// Gives a panel more, up to what it wants; returns how much.
fn grow(given: &mut [usize; 3], wanted: &[usize; 3], panel: Panel, most: usize, left: usize) -> usize {
    let index = panel as usize;
    let more = wanted[index].min(most).saturating_sub(given[index]).min(left);
    given[index] += more;
    more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_are_given_and_no_more() {
        for lines in 0..100 {
            for wanted in [0, 1, 5, 40, 1000] {
                for focus in Panel::ALL {
                    let wanted = Wanted { threads: wanted, calls: wanted, findings: wanted };
                    assert_eq!(share(lines, wanted, focus).iter().sum::<usize>(), lines);
                }
            }
        }
    }

    #[test]
    fn a_finding_is_whole_on_a_small_screen() {
        let wanted = Wanted { threads: 8, calls: 30, findings: 6 };
        let [threads, calls, findings] = share(20, wanted, Panel::Findings);
        assert!(findings >= 7 && threads >= 3 && calls >= 4, "{threads} {calls} {findings}");
    }

    #[test]
    fn a_very_small_screen_shows_the_panel_that_is_looked_at() {
        let wanted = Wanted { threads: 8, calls: 30, findings: 6 };
        assert_eq!(share(8, wanted, Panel::Calls), [0, 8, 0]);
    }
}
