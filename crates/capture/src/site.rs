//! Chooses the instruction a probe goes on.
//!
//! The kernel emulates a `push`, a `nop` and relative branches; anything else it has to single-step, which costs ten
//! times as much in a virtual machine. A function's arguments and stack pointer are intact for a few instructions, so
//! the probe may sit a little behind the entry.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register};

/// How many bytes behind the entry to look at: `endbr64` and two more instructions.
pub const REACH: usize = 24;

/// A place for a probe, relative to the function's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    pub offset: u64,
    /// Whether the kernel emulates the instruction there instead of single-stepping it.
    pub emulated: bool,
}

/// The cheapest place within the prologue in `code` at which arguments and stack are as at entry.
pub fn choose(code: &[u8]) -> Site {
    let code = &code[..code.len().min(REACH)];
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut factory = InstructionInfoFactory::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if is_emulated(&instruction) {
            return Site { offset: instruction.ip(), emulated: true };
        }
        if !can_be_passed(&instruction, &mut factory) {
            break;
        }
    }
    Site { offset: 0, emulated: false }
}

/// `push` of a register, a one-byte `nop`, and relative jumps and calls.
fn is_emulated(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Push_r64 | Code::Nopd | Code::Nopw | Code::Nopq)
        && (instruction.code() == Code::Push_r64 || instruction.len() == 1)
        || matches!(instruction.code(), Code::Jmp_rel8_64 | Code::Jmp_rel32_64 | Code::Call_rel32_64)
}

const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

/// Whether arguments and stack pointer are the same behind the instruction as before it.
fn can_be_passed(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next {
        return false;
    }
    let info = factory.info(instruction);
    info.used_registers().iter().all(|used| {
        let whole = used.register().full_register();
        let kept = matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
        kept || (whole != Register::RSP && !ARGUMENTS.contains(&whole))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &[u8], offset: u64, emulated: bool) {
        assert_eq!(choose(code), Site { offset, emulated }, "{code:02x?}");
    }

    #[test]
    fn a_push_at_the_entry_is_taken() {
        check(&[0x55, 0x48, 0x89, 0xe5], 0, true);
        check(&[0x41, 0x57, 0x41, 0x56], 0, true);
    }

    #[test]
    fn endbr64_is_skipped_for_the_push_behind_it() {
        check(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55], 4, true);
    }

    #[test]
    fn instructions_that_leave_arguments_and_stack_alone_are_skipped() {
        // mov eax, edi; push rbx
        check(&[0x89, 0xf8, 0x53], 2, true);
        // mov rax, rsp; push rbx
        check(&[0x48, 0x89, 0xe0, 0x53], 3, true);
    }

    #[test]
    fn nothing_behind_a_changed_stack_or_argument_is_taken() {
        // sub rsp, 24; push rbx
        check(&[0x48, 0x83, 0xec, 0x18, 0x53], 0, false);
        // xor esi, esi; push rbx
        check(&[0x31, 0xf6, 0x53], 0, false);
        // pop rbx; push rbx
        check(&[0x5b, 0x53], 0, false);
    }

    #[test]
    fn nothing_behind_a_branch_is_taken() {
        // je +2; push rbx
        check(&[0x74, 0x02, 0x53], 0, false);
        // ret; push rbx
        check(&[0xc3, 0x53], 0, false);
    }

    #[test]
    fn a_five_byte_nop_is_left_alone() {
        // Patched into a call by newer kernels, which overwrites the red zone of leaf functions.
        check(&[0x0f, 0x1f, 0x44, 0x00, 0x00, 0x48, 0x89, 0xe0, 0x53], 8, true);
    }

    #[test]
    fn truncated_and_empty_code_gets_the_entry() {
        check(&[], 0, false);
        check(&[0xf3, 0x0f], 0, false);
        check(&[0x48], 0, false);
    }
}
