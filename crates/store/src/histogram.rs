//! Histograms as the file keeps them: JSON that any SQLite tool can read, `[[lower_bound_ns, count], ...]`.

use gpuwhy_model::Histogram;

pub(crate) fn to_json(histogram: &Histogram) -> String {
    let pair = |&(index, count): &(u8, u64)| format!("[{},{count}]", Histogram::lower_bound_ns(index));
    let pairs: Vec<String> = histogram.buckets().iter().map(pair).collect();
    format!("[{}]", pairs.join(","))
}

pub(crate) fn from_json(text: &str) -> Result<Histogram, serde_json::Error> {
    let pairs: Vec<(u64, u64)> = serde_json::from_str(text)?;
    let mut histogram = Histogram::default();
    for (lower_bound_ns, count) in pairs {
        histogram.add(Histogram::index(lower_bound_ns), count);
    }
    Ok(histogram)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_histogram_survives_the_file(buckets in proptest::collection::vec((any::<u8>(), any::<u64>()), 0..300)) {
            let mut histogram = Histogram::default();
            for (index, count) in buckets {
                histogram.add(index, count);
            }
            prop_assert_eq!(from_json(&to_json(&histogram)).unwrap(), histogram);
        }

        #[test]
        fn text_that_is_no_histogram_is_an_error(text in ".*") {
            let _ = from_json(&text);
        }
    }
}
