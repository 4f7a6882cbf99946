//! The few DWARF expressions that compilers and linkers put into unwind information.

/// What an expression computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expression {
    /// A register plus an offset.
    Address {
        register: u16,
        offset: i64,
    },
    /// What lies at a register plus an offset.
    Content {
        register: u16,
        offset: i64,
    },
    /// sp + 8, and 8 more from this byte of each 16 on: a linker's table of jumps, each of which pushes a number.
    JumpTable {
        pushed_from: u8,
    },
    Other,
}

const BREG0: u8 = 0x70;
const BREG31: u8 = 0x8f;
const DEREF: u8 = 0x06;
const LIT0: u8 = 0x30;
/// `breg7 8, breg16 0, lit15, and`, then a literal, then `ge, lit3, shl, plus`.
const JUMP_TABLE_BEFORE: [u8; 6] = [0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a];
const JUMP_TABLE_AFTER: [u8; 4] = [0x2a, 0x33, 0x24, 0x22];

impl Expression {
    pub fn of(bytes: &[u8]) -> Self {
        Self::jump_table(bytes).or_else(|| Self::register(bytes)).unwrap_or(Self::Other)
    }

    fn jump_table(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&JUMP_TABLE_BEFORE)?;
        let literal = rest.strip_suffix(&JUMP_TABLE_AFTER)?;
        let &[literal] = literal else { return None };
        let pushed_from = literal.checked_sub(LIT0).filter(|&literal| literal < 16)?;
        Some(Self::JumpTable { pushed_from })
    }

    fn register(bytes: &[u8]) -> Option<Self> {
        let (&operation, rest) = bytes.split_first()?;
        if !(BREG0..=BREG31).contains(&operation) {
            return None;
        }
        let register = u16::from(operation - BREG0);
        let (offset, rest) = signed_leb128(rest)?;
        match rest {
            [] => Some(Self::Address { register, offset }),
            [DEREF] => Some(Self::Content { register, offset }),
            _ => None,
        }
    }
}

/// Larger numbers than these bytes hold are no offsets in a stack frame.
const MOST_BYTES: usize = 5;

fn signed_leb128(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let last = bytes.iter().take(MOST_BYTES).position(|byte| byte & 0x80 == 0)?;
    let (number, rest) = bytes.split_at(last + 1);
    let value = number.iter().rev().fold(0_i64, |value, byte| value << 7 | i64::from(byte & 0x7f));
    let unused = 64 - 7 * number.len();
    Some((value << unused >> unused, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_shapes_are_recognized() {
        assert_eq!(Expression::of(&[0x76, 0x78, 0x06]), Expression::Content { register: 6, offset: -8 });
        assert_eq!(Expression::of(&[0x77, 0xa0, 0x01, 0x06]), Expression::Content { register: 7, offset: 160 });
        assert_eq!(Expression::of(&[0x76, 0x00]), Expression::Address { register: 6, offset: 0 });
        let jumps = [0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(Expression::of(&jumps), Expression::JumpTable { pushed_from: 11 });
    }

    #[test]
    fn everything_else_is_other() {
        let endless = [0x76, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        for bytes in [&[][..], &[0x06], &[0x76], &[0x76, 0x80], &[0x76, 0, 0x06, 0x06], &endless] {
            assert_eq!(Expression::of(bytes), Expression::Other, "{bytes:x?}");
        }
    }
}
