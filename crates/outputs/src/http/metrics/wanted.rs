//! In which format somebody wants metrics: what the header `Accept` says.

/// A format that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Protobuf,
    OpenMetrics,
    Classic,
}

struct Offer {
    format: Wanted,
    media_type: &'static str,
    /// What it is more closely, with the values that are served.
    parameters: &'static [(&'static str, &'static [&'static str])],
    /// Whether somebody has to say so.
    has_to_be_said: bool,
}

/// Of formats that somebody likes equally the first is taken.
const OFFERS: &[Offer] = &[
    Offer {
        format: Wanted::Protobuf,
        media_type: "application/vnd.google.protobuf",
        parameters: &[("proto", &["io.prometheus.client.MetricFamily"]), ("encoding", &["delimited"])],
        has_to_be_said: true,
    },
    Offer {
        format: Wanted::OpenMetrics,
        media_type: "application/openmetrics-text",
        parameters: &[("version", &["1.0.0", "0.0.1"])],
        has_to_be_said: false,
    },
    Offer {
        format: Wanted::Classic,
        media_type: "text/plain",
        parameters: &[("version", &["0.0.4"])],
        has_to_be_said: false,
    },
];

/// Who takes anything gets what people can read.
const ANYTHING: &[&str] = &["*/*", "text/*"];

impl Wanted {
    /// The format that is liked best. Who accepts none of them gets the classic one, as exporters do.
    pub fn accepted(accept: &str) -> Self {
        let ranges: Vec<Range<'_>> = split(accept, ',').filter_map(Range::parse).collect();
        let mut best = (Self::Classic, 0.0);
        for offer in OFFERS {
            let weight = offer.weight(&ranges);
            if weight > best.1 {
                best = (offer.format, weight);
            }
        }
        best.0
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

impl Offer {
    /// What is said of the format itself counts more than what is said of anything.
    fn weight(&self, ranges: &[Range<'_>]) -> f64 {
        let heaviest = |weights: &mut dyn Iterator<Item = f64>| weights.reduce(f64::max);
        let own = heaviest(&mut ranges.iter().filter(|range| self.is_in(range)).map(|range| range.weight));
        let is_any = |range: &&Range<'_>| self.format == Wanted::Classic && ANYTHING.contains(&&*range.media_type);
        own.or_else(|| heaviest(&mut ranges.iter().filter(is_any).map(|range| range.weight))).unwrap_or(0.0)
    }

    fn is_in(&self, range: &Range<'_>) -> bool {
        let is_served = |(name, served): &(&str, &[&str])| match range.parameter(name) {
            Some(value) => served.contains(&value),
            None => !self.has_to_be_said,
        };
        range.media_type == self.media_type && self.parameters.iter().all(is_served)
    }
}

/// What somebody accepts, and how much it is liked: from 0, not at all, to 1.
struct Range<'a> {
    media_type: String,
    parameters: Vec<(String, &'a str)>,
    weight: f64,
}

impl<'a> Range<'a> {
    /// One that makes no sense is as if it was not there.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = split(text, ';');
        let media_type = parts.next()?.trim().to_ascii_lowercase();
        let (mut parameters, mut weight) = (Vec::new(), 1.0);
        for part in parts {
            let (name, value) = part.split_once('=')?;
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"'));
            if name == "q" {
                weight = value.parse::<f64>().ok().filter(|weight| (0.0..=1.0).contains(weight))?;
            } else {
                parameters.push((name, value));
            }
        }
        Some(Self { media_type, parameters, weight })
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

/// The parts between separators that are not within quotes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |letter| {
        is_quoted ^= letter == '"';
        letter == separator && !is_quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

    #[test]
    fn what_is_liked_best_is_given() {
        for (accept, wanted) in [
            ("", Wanted::Classic),
            ("*/*", Wanted::Classic),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Wanted::Classic),
            ("text/plain", Wanted::Classic),
            ("application/json", Wanted::Classic),
            ("application/openmetrics-text", Wanted::OpenMetrics),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"", Wanted::OpenMetrics),
            ("application/openmetrics-text;version=2.0.0,text/plain;q=0.5", Wanted::Classic),
            ("text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5", Wanted::Classic),
            ("text/plain,application/openmetrics-text", Wanted::OpenMetrics),
            ("text/plain;q=0,application/openmetrics-text;q=0.1,*/*", Wanted::OpenMetrics),
            ("application/openmetrics-text;q=0,*/*;q=0.1", Wanted::Classic),
            ("application/openmetrics-text;note=\"a,b;q=0\";q=0.5,text/plain;q=0.2", Wanted::OpenMetrics),
            ("application/openmetrics-text;q=much,text/plain;q=0.2", Wanted::Classic),
            (PROTOBUF, Wanted::Protobuf),
            ("application/vnd.google.protobuf,text/plain;q=0.5", Wanted::Classic),
            ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", Wanted::Classic),
        ] {
            assert_eq!(Wanted::accepted(accept), wanted, "{accept}");
        }
    }

    /// As Prometheus 2.42 and 3.5 ask, with native histograms and without.
    #[test]
    fn prometheus_gets_what_it_prefers() {
        let texts = "application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
                     text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Wanted::accepted(&format!("{PROTOBUF},{texts}")), Wanted::Protobuf);
        assert_eq!(Wanted::accepted(texts), Wanted::OpenMetrics);
        let texts = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                     application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                     text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(Wanted::accepted(&format!("{texts},{PROTOBUF};q=0.7")), Wanted::Protobuf);
        assert_eq!(Wanted::accepted(texts), Wanted::OpenMetrics);
    }
}
