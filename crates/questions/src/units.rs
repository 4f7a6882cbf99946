//! Durations, sizes, counts and moments, as people write and read them.

pub use gpuwhy_model::units::*;

/// A moment as nanoseconds since 1970: RFC 3339 with or without its zone, a time of today, or the number itself.
pub fn parse_moment(text: &str) -> Result<u64, String> {
    if let Ok(ns) = text.parse::<u64>() {
        return Ok(ns);
    }
    let here = || jiff::tz::TimeZone::system();
    let moment = text
        .parse::<jiff::Timestamp>()
        .or_else(|_| text.parse::<jiff::civil::DateTime>()?.to_zoned(here()).map(|zoned| zoned.timestamp()))
        .or_else(|_| {
            let today = jiff::Zoned::now().date();
            today.to_datetime(text.parse::<jiff::civil::Time>()?).to_zoned(here()).map(|zoned| zoned.timestamp())
        })
        .map_err(|_| format!("{text:?} is no moment; use 2026-01-31T12:00:00Z, 12:00:00 or nanoseconds since 1970"))?;
    u64::try_from(moment.as_nanosecond()).map_err(|_| format!("{text:?} is before 1970"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_in_any_of_their_spellings() {
        assert_eq!(parse_moment("1970-01-01T00:00:01Z").unwrap(), 1_000_000_000);
        assert_eq!(parse_moment("1700000000000000000").unwrap(), 1_700_000_000_000_000_000);
        assert!(parse_moment("12:00:00").is_ok() && parse_moment("2026-01-31T12:00:00").is_ok());
        for bad in ["", "noon", "-1", "1950-01-01T00:00:00Z", "2026-13-01T00:00:00Z"] {
            assert!(parse_moment(bad).is_err(), "{bad}");
        }
    }
}
