//! Line tables: which line an instruction belongs to. Each version writes them in its own way; hostile tables give wrong
//! lines at worst.

use super::layout::LineTable;

/// The line of the instruction at an offset in bytes, as `PyCode_Addr2Line` of the version that wrote the table. `None`
/// for instructions that belong to no line, such as those that the compiler made up.
pub(super) fn line(kind: LineTable, table: &[u8], first_line: i32, offset: i32) -> Option<u32> {
    let line = match u64::try_from(offset) {
        // Before the first instruction.
        Err(_) => Some(i64::from(first_line)),
        Ok(offset) => match kind {
            LineTable::Lnotab => Some(lnotab(table, first_line.into(), offset)),
            LineTable::Ranges => ranges(table, first_line.into(), offset),
            LineTable::Locations => locations(table, first_line.into(), offset),
        },
    };
    line.and_then(|line| u32::try_from(line).ok())
}

/// Pairs of bytes: how many bytes of code further, how many lines further.
fn lnotab(table: &[u8], first_line: i64, wanted: u64) -> i64 {
    let mut offset = 0;
    let mut line = first_line;
    for [bytes, lines] in table.as_chunks().0 {
        offset += u64::from(*bytes);
        if offset > wanted {
            break;
        }
        line += i64::from(lines.cast_signed());
    }
    line
}

/// Pairs of bytes: how many bytes of code belong to the line that is so many lines further, or to none.
fn ranges(table: &[u8], first_line: i64, wanted: u64) -> Option<i64> {
    const NO_LINE: i8 = -128;
    let mut end = 0;
    let mut line = first_line;
    for [bytes, lines] in table.as_chunks().0 {
        let lines = lines.cast_signed();
        end += u64::from(*bytes);
        if lines != NO_LINE {
            line += i64::from(lines);
        }
        if end > wanted {
            return (lines != NO_LINE).then_some(line);
        }
    }
    None
}

/// Entries of different length. The first byte of each has its highest bit set, then 4 bits that say what follows, and
/// 3 bits for how many units of two bytes of code it is about.
fn locations(table: &[u8], first_line: i64, wanted: u64) -> Option<i64> {
    const FIRST: u8 = 0x80;
    const NO_LOCATION: u8 = 15;
    let mut end = 0;
    let mut line = first_line;
    let mut rest = table;
    while let Some((first, after)) = rest.split_first() {
        let kind = first >> 3 & 15;
        end += 2 * (u64::from(first & 7) + 1);
        line = line.wrapping_add(line_delta(kind, after));
        if end > wanted {
            return (kind != NO_LOCATION).then_some(line);
        }
        let next = after.iter().position(|byte| byte & FIRST != 0).unwrap_or(after.len());
        rest = after.get(next..)?;
    }
    None
}

fn line_delta(kind: u8, after: &[u8]) -> i64 {
    match kind {
        13 | 14 => signed_number(after),
        10..=12 => i64::from(kind - 10),
        _ => 0,
    }
}

/// Six bits in each byte, the lowest first, and a bit that says that there is more. The lowest of all is the sign.
fn signed_number(bytes: &[u8]) -> i64 {
    const MOST_BYTES: usize = 6;
    let mut number = 0_i64;
    for (index, byte) in bytes.iter().take(MOST_BYTES).enumerate() {
        number |= i64::from(byte & 63) << (6 * index);
        if byte & 64 == 0 {
            break;
        }
    }
    if number & 1 == 0 { number >> 1 } else { -(number >> 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_the_first_instruction_it_is_the_first_line() {
        for kind in [LineTable::Lnotab, LineTable::Ranges, LineTable::Locations] {
            assert_eq!(line(kind, &[], 7, -1), Some(7), "{kind:?}");
        }
    }

    #[test]
    fn lnotab_steps_forward_and_back() {
        let table = [0, 1, 6, 1, 4, 0xfe];
        let at = |offset| line(LineTable::Lnotab, &table, 10, offset);
        assert_eq!([at(0), at(4), at(6), at(10), at(99)], [Some(11), Some(11), Some(12), Some(10), Some(10)]);
    }

    #[test]
    fn ranges_may_belong_to_no_line() {
        let table = [4, 1, 2, 0x80, 2, 1];
        let at = |offset| line(LineTable::Ranges, &table, 10, offset);
        assert_eq!([at(0), at(2), at(4), at(6), at(8)], [Some(11), Some(11), None, Some(12), None]);
    }

    #[test]
    fn locations_of_each_form_are_followed() {
        // Short form, one line further, long form with 3 lines back, no location, no columns with 100 lines further.
        let table = [0x80, 0x11, 0x80 | 11 << 3 | 1, 1, 2, 0x80 | 14 << 3, 7, 0, 1, 1, 0xf8, 0x80 | 13 << 3, 0x48, 3];
        let at = |offset| line(LineTable::Locations, &table, 10, offset);
        assert_eq!([at(0), at(2), at(4), at(6)], [Some(10), Some(11), Some(11), Some(8)]);
        assert_eq!([at(8), at(10), at(12)], [None, Some(108), None]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_end_and_never_panic(table: Vec<u8>, first: i32, offset: i32) {
            for kind in [LineTable::Lnotab, LineTable::Ranges, LineTable::Locations] {
                let _ = line(kind, &table, first, offset);
            }
        }
    }
}
