//! Versions of Python.

use std::fmt;

/// Those whose frames we know.
pub(super) const SUPPORTED: &str = "3.9 to 3.14";

/// A version of Python 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    pub minor: u8,
    /// Not known before 3.11.
    pub micro: Option<u8>,
}

impl Version {
    /// From `PY_VERSION_HEX`. Layouts change until a version's release candidates: what is older than those has none.
    pub(super) fn from_hex(hex: u64) -> Option<Self> {
        const CANDIDATE: u8 = 0xc;
        let [serial, micro, minor, major] = u32::try_from(hex).ok()?.to_le_bytes();
        (major == 3 && serial >> 4 >= CANDIDATE).then_some(Self { minor, micro: Some(micro) })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.micro {
            Some(micro) => write!(formatter, "3.{}.{micro}", self.minor),
            None => write!(formatter, "3.{}", self.minor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_and_candidates_have_a_version_and_betas_do_not() {
        assert_eq!(Version::from_hex(0x030d_00f0), Some(Version { minor: 13, micro: Some(0) }));
        assert_eq!(Version::from_hex(0x030e_00c1), Some(Version { minor: 14, micro: Some(0) }));
        assert_eq!(Version::from_hex(0x030e_00b3), None);
        assert_eq!(Version::from_hex(0x0207_12f0), None);
        assert_eq!(Version::from_hex(u64::MAX), None);
    }
}
