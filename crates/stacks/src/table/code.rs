//! Where machine code calls something.

use iced_x86::{Decoder, DecoderOptions, Instruction};

/// How many instructions call something, in code that begins with an instruction. Bytes that are none count as well:
/// nobody knows what they do.
pub fn calls(code: &[u8]) -> usize {
    const MODE: u32 = 64;
    let decoder = Decoder::new(MODE, code, DecoderOptions::NONE);
    decoder.into_iter().filter(|instruction| instruction.is_invalid() || is_call(instruction)).count()
}

fn is_call(instruction: &Instruction) -> bool {
    instruction.is_call_near()
        || instruction.is_call_near_indirect()
        || instruction.is_call_far()
        || instruction.is_call_far_indirect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: &[u8], expected: usize) {
        assert_eq!(calls(code), expected, "{code:x?}");
    }

    #[test]
    fn calls_of_all_kinds_are_seen() {
        check(&[0xe8, 0, 1, 0, 0], 1);
        check(&[0x41, 0xff, 0xd4], 1);
        check(&[0xff, 0x15, 1, 2, 3, 4], 1);
        check(&[0xff, 0x50, 0x18], 1);
        check(&[0xff, 0x14, 0xc5, 1, 2, 3, 4], 1);
        check(&[0x55, 0xe8, 0, 1, 0, 0, 0xff, 0xd0, 0xc3], 2);
    }

    #[test]
    fn the_same_bytes_inside_of_other_instructions_are_no_calls() {
        check(&[0x41, 0x83, 0xe8, 0x04, 0x90, 0x90, 0x90], 0);
        check(&[0x81, 0xff, 0x92, 0, 0, 0], 0);
    }

    #[test]
    fn jumps_pushes_and_padding_are_no_calls() {
        check(&[0xff, 0x25, 1, 2, 3, 4], 0);
        check(&[0xff, 0xe0, 0xff, 0x35, 1, 2, 3, 4], 0);
        check(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0xc9, 0xc3], 0);
        check(&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xcc, 0, 0], 0);
        check(&[], 0);
    }

    #[test]
    fn what_is_no_instruction_may_be_anything() {
        check(&[0x06], 1);
        check(&[0xe8, 0, 1], 1);
    }
}
