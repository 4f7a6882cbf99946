//! Durations, sizes and counts, as people write and read them.

use std::time::Duration;

/// `90s`, `500ms`, `5m`, `2h`, `1d`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(format!("{unit:?} is no unit of time; use ms, s, m, h or d")),
    };
    Duration::try_from_secs_f64(number * seconds).map_err(|_| format!("{text:?} is too long"))
}

/// `500MB`, `2GiB`; a bare number is bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let bytes: f64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("{unit:?} is no unit of size; use kB, MB, GB, KiB, MiB or GiB")),
    };
    let size = number * bytes;
    if size < u64::MAX as f64 { Ok(size as u64) } else { Err(format!("{text:?} is too large")) }
}

/// `1%` or `0.5 %` as a share; `0` needs no sign.
pub fn parse_share(text: &str) -> Result<f64, String> {
    match split(text)? {
        (0.0, "" | "%") => Ok(0.0),
        (percent, "%") if percent <= 100.0 => Ok(percent / 100.0),
        (_, "%") => Err(format!("{text:?} is more than everything")),
        _ => Err(format!("{text:?} is no share; use a percentage such as 1%")),
    }
}

fn split(text: &str) -> Result<(f64, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse().map_err(|_| format!("{text:?} does not start with a number"))?;
    Ok((number, unit.trim()))
}

/// Three significant digits and the unit that suits them.
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", three(ns, 1_000)),
        1_000_000..1_000_000_000 => format!("{} ms", three(ns, 1_000_000)),
        _ => format!("{} s", three(ns, 1_000_000_000)),
    }
}

fn three(value: u64, unit: u64) -> String {
    let scaled = value as f64 / unit as f64;
    match scaled {
        ..10.0 => format!("{scaled:.2}"),
        ..100.0 => format!("{scaled:.1}"),
        _ => format!("{scaled:.0}"),
    }
}

/// `20.0 GiB`
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() / 10).min(UNITS.len() as u32 - 1);
    let unit = UNITS[power as usize];
    if power == 0 { format!("{bytes} {unit}") } else { format!("{} {unit}", three(bytes, 1 << (10 * power))) }
}

/// `1,234,567`
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `0.84 %`
pub fn share(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        assert_eq!(parse_duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(parse_duration("1.5h").unwrap(), Duration::from_secs(5400));
        assert_eq!(parse_duration("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(parse_duration("7").unwrap(), Duration::from_secs(7));
        for bad in ["", "s", "5 parsecs", "-3s", "1e400s", "99999999999999999999d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!(parse_size("2GiB").unwrap(), 2 << 30);
        assert_eq!(parse_size("500MB").unwrap(), 500_000_000);
        assert_eq!(parse_size("4096").unwrap(), 4096);
        assert!(parse_size("many").is_err());
        assert!(parse_size("99999999999999TB").is_err());
    }

    #[test]
    fn shares_are_read_as_percentages() {
        assert_eq!(parse_share("1%").unwrap(), 0.01);
        assert_eq!(parse_share("0.5 %").unwrap(), 0.005);
        assert_eq!(parse_share("0").unwrap(), 0.0);
        for bad in ["", "%", "1", "0.01", "-1%", "101%", "1 percent", "nan%", "inf%"] {
            assert!(parse_share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(1_234), "1.23 us");
        assert_eq!(duration(45_600_000), "45.6 ms");
        assert_eq!(duration(3_000_000_000), "3.00 s");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!((size(512), size(20 << 30)), ("512 B".to_owned(), "20.0 GiB".to_owned()));
        assert_eq!(percent(1, 0), "-");
        assert_eq!(percent(1, 8), "12.5 %");
    }
}
