//! Strings and bytes of Python, read with bounds.

use anyhow::{Context, Result, bail};

use super::interpreter::Interpreter;
use crate::memory::Memory;

/// Names are cut after this many bytes of memory.
const MOST_NAME_BYTES: u64 = 1024;
const MOST_TABLE_BYTES: u64 = 1 << 20;

/// The bits of a string's state, the same in all versions.
const KIND_SHIFT: u32 = 2;
const KIND_MASK: u32 = 7;
const COMPACT: u32 = 1 << 5;
const ASCII: u32 = 1 << 6;

/// Reads a string object, cut if it is very long.
pub(super) fn read_string(memory: &impl Memory, interpreter: &Interpreter, address: u64) -> Result<String> {
    let layout = &interpreter.layout.unicode;
    check_type(memory, interpreter, address, interpreter.unicode_type).context("not a string")?;
    let length = memory.read_u64(at(address, layout.length)).context("a string's length cannot be read")?;
    let state = memory.read_u32(at(address, layout.state)).context("a string's state cannot be read")?;
    if state & COMPACT == 0 {
        bail!("a string whose characters are elsewhere");
    }
    let is_ascii = state & ASCII != 0;
    let width = state >> KIND_SHIFT & KIND_MASK;
    let start = if is_ascii { layout.ascii_characters } else { layout.other_characters };
    let characters = length.min(MOST_NAME_BYTES / u64::from(width.max(1)));
    let bytes =
        read_bytes(memory, at(address, start), characters * u64::from(width)).context("a string's characters")?;
    decode(&bytes, width)
}

/// Reads the content of a bytes object. One that is larger than anything a compiler writes is refused.
pub(super) fn read_table(memory: &impl Memory, interpreter: &Interpreter, address: u64) -> Result<Vec<u8>> {
    let layout = &interpreter.layout.bytes;
    check_type(memory, interpreter, address, interpreter.bytes_type).context("not a bytes object")?;
    let size = memory.read_u64(at(address, layout.size)).context("its size cannot be read")?;
    if size > MOST_TABLE_BYTES {
        bail!("it has {size} bytes");
    }
    read_bytes(memory, at(address, layout.content), size).context("its content")
}

/// The address of a field. What a hostile process makes up may wrap around.
pub(super) fn at(address: u64, offset: u16) -> u64 {
    address.wrapping_add(u64::from(offset))
}

fn check_type(memory: &impl Memory, interpreter: &Interpreter, address: u64, wanted: u64) -> Result<()> {
    let found = memory.read_u64(at(address, interpreter.layout.object_type)).context("an object cannot be read")?;
    if found != wanted {
        bail!("the type of the object at {address:#x} is {found:#x}, not {wanted:#x}");
    }
    Ok(())
}

/// The caller bounds the size.
fn read_bytes(memory: &impl Memory, address: u64, size: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size)?];
    if !bytes.is_empty() && !memory.read(address, &mut bytes) {
        bail!("cannot be read");
    }
    Ok(bytes)
}

/// Characters of one, two or four bytes. Surrogates, which file names may have, become replacement characters.
fn decode(bytes: &[u8], width: u32) -> Result<String> {
    let character = |code: u32| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    Ok(match width {
        1 => bytes.iter().map(|byte| char::from(*byte)).collect(),
        2 => bytes.as_chunks().0.iter().map(|unit| character(u16::from_le_bytes(*unit).into())).collect(),
        4 => bytes.as_chunks().0.iter().map(|unit| character(u32::from_le_bytes(*unit))).collect(),
        other => bail!("characters of {other} bytes"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_of_each_width_are_decoded() {
        assert_eq!(decode("f\u{e9}".chars().map(|c| c as u8).collect::<Vec<_>>().as_slice(), 1).unwrap(), "fé");
        assert_eq!(decode(&[0x2c, 0x67], 2).unwrap(), "本");
        assert_eq!(decode(&[0x00, 0xf6, 0x01, 0x00], 4).unwrap(), "😀");
    }

    #[test]
    fn what_is_no_character_is_replaced_and_an_unknown_width_refused() {
        assert_eq!(decode(&[0x80, 0xdc], 2).unwrap(), "\u{fffd}");
        assert_eq!(decode(&[0xff; 4], 4).unwrap(), "\u{fffd}");
        assert!(decode(&[], 3).is_err());
        assert!(decode(&[], 0).is_err());
    }
}
