//! Windows of time that sums are kept for. Each level holds all of the last time that it is for; a question reads the one
//! that has few enough rows.

use gpuwhy_fleet::WINDOW_NS;

const MINUTE_NS: u64 = 60_000_000_000;
const HOUR_NS: u64 = 60 * MINUTE_NS;
const DAY_NS: u64 = 24 * HOUR_NS;

/// Twice as many rows, which is what comparing two times takes, are added up in less than a second.
const MOST_ROWS: u64 = 250_000;

#[derive(Debug)]
pub struct Level {
    pub table: &'static str,
    pub window_ns: u64,
    /// What is older is deleted.
    pub kept_ns: u64,
    pub description: &'static str,
}

/// From the finest to the coarsest. A window is a multiple of the one before.
pub const LEVELS: &[Level] = &[
    Level {
        table: "spans_10s",
        window_ns: WINDOW_NS,
        kept_ns: 2 * HOUR_NS,
        description: "What each worker did in ten seconds; kept for two hours.",
    },
    Level {
        table: "spans_1m",
        window_ns: MINUTE_NS,
        kept_ns: 2 * DAY_NS,
        description: "The same for a minute; kept for two days.",
    },
    Level {
        table: "spans_10m",
        window_ns: 10 * MINUTE_NS,
        kept_ns: 30 * DAY_NS,
        description: "The same for ten minutes; kept for thirty days.",
    },
    Level {
        table: "spans_1h",
        window_ns: HOUR_NS,
        kept_ns: 730 * DAY_NS,
        description: "The same for an hour; kept for two years.",
    },
];

/// The finest level that has few enough rows for so much time of so many workers.
pub fn level_for(span_ns: u64, workers: u64) -> usize {
    let rows = |level: &Level| (span_ns / level.window_ns).saturating_mul(workers);
    LEVELS.iter().position(|level| rows(level) <= MOST_ROWS && span_ns <= level.kept_ns).unwrap_or(LEVELS.len() - 1)
}

/// How far a file is with a level: of what time on, and until when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// What lies before has been deleted.
    pub from_ns: u64,
    /// Windows from here on have not been added up yet. The finest level has them all.
    pub to_ns: u64,
}

/// A stretch of time that one level is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub level: usize,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// What to read for a stretch of time, mostly from one level: what that has not added up yet from finer ones, and what it has
/// no more from coarser ones. Pieces do not overlap; the first one begins where a window does.
pub fn pieces(from_ns: u64, to_ns: u64, level: usize, extents: &[Extent]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut end_ns = to_ns.div_ceil(WINDOW_NS).saturating_mul(WINDOW_NS);
    for finer in 0..level {
        if end_ns <= from_ns {
            break;
        }
        let begin_ns = extents[finer + 1].to_ns.max(from_ns / LEVELS[finer].window_ns * LEVELS[finer].window_ns);
        if begin_ns < end_ns {
            pieces.push(Piece { level: finer, from_ns: begin_ns, to_ns: end_ns });
            end_ns = begin_ns;
        }
    }
    for at in level..LEVELS.len() {
        if end_ns <= from_ns {
            break;
        }
        let wanted_ns = from_ns / LEVELS[at].window_ns * LEVELS[at].window_ns;
        // Where the next coarser level takes over, one of its windows ends.
        let had_ns = match LEVELS.get(at + 1) {
            Some(coarser) => extents[at].from_ns.div_ceil(coarser.window_ns) * coarser.window_ns,
            None => extents[at].from_ns,
        };
        let begin_ns = wanted_ns.max(had_ns);
        if begin_ns < end_ns {
            pieces.push(Piece { level: at, from_ns: begin_ns, to_ns: end_ns });
            end_ns = begin_ns;
        }
    }
    pieces.reverse();
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_window_is_a_multiple_of_the_one_before_and_kept_for_longer() {
        for pair in LEVELS.windows(2) {
            assert!(pair[1].window_ns.is_multiple_of(pair[0].window_ns) && pair[1].kept_ns > pair[0].kept_ns);
        }
    }

    #[test]
    fn the_more_there_is_the_coarser_it_is_read() {
        assert_eq!(level_for(HOUR_NS, 8), 0);
        assert_eq!(level_for(DAY_NS, 8), 1);
        assert_eq!(level_for(DAY_NS, 8_000), 3);
        assert_eq!((level_for(10 * MINUTE_NS, 1_000), level_for(10 * MINUTE_NS, 8_000)), (0, 1));
        assert_eq!(level_for(10 * MINUTE_NS, 80_000), 2);
        assert_eq!(level_for(365 * DAY_NS, 1), 3);
    }

    fn extents(now_ns: u64) -> Vec<Extent> {
        let extent = |level: &Level| Extent {
            from_ns: (now_ns - level.kept_ns) / level.window_ns * level.window_ns,
            to_ns: now_ns / level.window_ns * level.window_ns,
        };
        LEVELS.iter().map(extent).collect()
    }

    #[test]
    fn pieces_follow_each_other_without_gap_and_without_overlap() {
        let now_ns = 1_000 * DAY_NS + 7 * HOUR_NS + 13 * MINUTE_NS + 25_000_000_000;
        let extents = extents(now_ns);
        for level in 0..LEVELS.len() {
            for back_ns in [1, 30_000_000_000, MINUTE_NS, 90 * MINUTE_NS, 3 * HOUR_NS, 3 * DAY_NS, 40 * DAY_NS] {
                let from_ns = now_ns - back_ns;
                let found = pieces(from_ns, now_ns, level, &extents);
                assert!(found.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns), "{found:?}");
                let (first, last) = (found.first().unwrap(), found.last().unwrap());
                assert!(first.from_ns <= from_ns && last.to_ns >= now_ns && last.level == 0, "{found:?}");
                assert!(first.from_ns + LEVELS[first.level].window_ns > from_ns, "{found:?}");
                for piece in &found {
                    let window_ns = LEVELS[piece.level].window_ns;
                    assert!(
                        piece.from_ns.is_multiple_of(window_ns) && piece.to_ns.is_multiple_of(window_ns),
                        "{piece:?}"
                    );
                    assert!(piece.from_ns >= extents[piece.level].from_ns, "{piece:?}");
                    assert!(piece.level == 0 || piece.to_ns <= extents[piece.level].to_ns, "{piece:?}");
                }
            }
        }
    }

    #[test]
    fn a_new_file_has_only_the_finest_level() {
        let found = pieces(100 * WINDOW_NS, 105 * WINDOW_NS, 3, &[Extent::default(); 4]);
        assert_eq!(found, [Piece { level: 0, from_ns: 100 * WINDOW_NS, to_ns: 105 * WINDOW_NS }]);
    }
}
