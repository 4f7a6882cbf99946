//! Numbers in words, the same everywhere in a finding.

/// A share as people read it: `41 %`, `3.7 %`, `under 0.1 %`.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if !percent.is_finite() || percent <= 0.0 => "0 %".to_owned(),
        _ if percent < 0.1 => "under 0.1 %".to_owned(),
        _ if percent < 9.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// A duration as people read it: `4.1 s`, `12.0 ms`, `850 ns`.
pub(crate) fn duration(ns: u64) -> String {
    const UNITS: &[(f64, &str)] = &[(1e9, "s"), (1e6, "ms"), (1e3, "us")];
    let value = ns as f64;
    match UNITS.iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", value / unit),
        None => format!("{ns} ns"),
    }
}

/// An amount of memory as people read it: `1.5 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: &[(f64, &str)] = &[(1073741824.0, "GiB"), (1048576.0, "MiB"), (1024.0, "KiB")];
    let value = bytes as f64;
    match UNITS.iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", value / unit),
        None => format!("{bytes} bytes"),
    }
}

/// `part` of `whole`; 0 of nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A share with the digits that an explanation has.
pub(crate) fn rounded(share: f64) -> f64 {
    (share * 10_000.0).round() / 10_000.0
}

/// A share of an amount, never more than it.
pub(crate) fn part(whole: u64, share: f64) -> u64 {
    ((whole as f64 * share.clamp(0.0, 1.0)) as u64).min(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(
            [percent(0.412), percent(0.037), percent(0.0004), percent(0.0)],
            ["41 %", "3.7 %", "under 0.1 %", "0 %"]
        );
        assert_eq!([duration(4_100_000_000), duration(12_000_000), duration(850)], ["4.1 s", "12.0 ms", "850 ns"]);
        assert_eq!([bytes(3 << 29), bytes(100)], ["1.5 GiB", "100 bytes"]);
    }

    #[test]
    fn a_share_of_nothing_is_none_and_no_part_is_more_than_the_whole() {
        assert_eq!(share(5, 0), 0.0);
        assert_eq!([part(10, 0.5), part(10, 7.0), part(10, f64::NAN), part(u64::MAX, 1.0)], [5, 10, 0, u64::MAX]);
    }
}
