//! Everything that can have a limit. To add one, write its constant, its line in [`CONDITIONS`], and measure it.

use gpuwhy_model::units;

/// Something that is measured again and again, of a process, a function, a GPU or a finding.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// What it is called in a rules file.
    pub name: &'static str,
    pub unit: Unit,
    /// What there is one value of.
    pub each: &'static str,
    pub meaning: &'static str,
    /// What an alert says, with the value for `{}`.
    pub says: &'static str,
}

/// How a limit is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// `20GiB`.
    Bytes,
    /// `30%`.
    Share,
    /// `5ms`.
    Time,
    /// `100`.
    Count,
}

impl Unit {
    pub fn example(self) -> &'static str {
        match self {
            Self::Bytes => "20GiB",
            Self::Share => "30%",
            Self::Time => "5ms",
            Self::Count => "100",
        }
    }

    /// Bytes, shares, seconds, or the number itself.
    pub fn parse(self, text: &str) -> Result<f64, String> {
        match self {
            Self::Bytes => units::parse_size(text).map(|bytes| bytes as f64),
            Self::Share => units::parse_share(text),
            Self::Time => units::parse_duration(text).map(|time| time.as_secs_f64()),
            Self::Count => match text.parse::<f64>() {
                Ok(count) if count.is_finite() && count >= 0.0 => Ok(count),
                _ => Err(format!("{text:?} is no number")),
            },
        }
    }

    pub fn write(self, value: f64) -> String {
        match self {
            Self::Bytes => units::size(value as u64),
            Self::Share => units::share(value),
            Self::Time => units::duration((value * 1e9) as u64),
            Self::Count => units::count(value as u64),
        }
    }
}

pub const CONDITIONS: &[&Condition] = &[&PROCESS_MEMORY, &OFF_CPU, &CALL_P99, &RETRANSMITS, &GPU_IDLE, &FINDING];

pub const PROCESS_MEMORY: Condition = Condition {
    name: "process-memory",
    unit: Unit::Bytes,
    each: "process",
    meaning: "GPU memory that the process has allocated since it is traced and not freed, as seen at the end of a second.",
    says: "has {} of GPU memory",
};

pub const OFF_CPU: Condition = Condition {
    name: "off-cpu",
    unit: Unit::Share,
    each: "process",
    meaning: "The part of a second that a thread which launches work was off the CPU, waits inside calls of the GPU's \
              libraries not counted; of several threads, that of the one which was so the longest.",
    says: "was off the CPU for {} of a second",
};

pub const CALL_P99: Condition = Condition {
    name: "call-p99",
    unit: Unit::Time,
    each: "process and function",
    meaning: "99 of 100 calls in a second took no longer.",
    says: "took {} or less for 99 of 100 calls",
};

pub const RETRANSMITS: Condition = Condition {
    name: "retransmits",
    unit: Unit::Count,
    each: "process",
    meaning: "Segments of its TCP connections that were sent again in a second.",
    says: "had {} segments sent again in a second",
};

pub const GPU_IDLE: Condition = Condition {
    name: "gpu-idle",
    unit: Unit::Share,
    each: "GPU",
    meaning: "The part of the last 5 seconds in which a GPU that is used had nothing to do.",
    says: "was idle for {} of the last seconds",
};

pub const FINDING: Condition = Condition {
    name: "finding",
    unit: Unit::Share,
    each: "process and cause",
    meaning: "The part of the last 5 seconds that a cause took, of those causes that `explain` finds in them.",
    says: "lost {} of the last seconds",
};
