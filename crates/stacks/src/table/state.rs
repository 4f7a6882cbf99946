//! What unwind instructions have said so far about one place of a function: an interpreter that keeps only the CFA, the
//! frame pointer and the return address.

use gimli::{CallFrameInstruction, EhFrame, EndianSlice, LittleEndian, Register};

use super::expression::Expression;
use super::rule::{FramePointer, Kind, Rule};
use super::skipped::Reason;

pub type Bytes<'data> = EndianSlice<'data, LittleEndian>;

const BP: u16 = 6;
const SP: u16 = 7;
const RETURN_ADDRESS: u16 = 16;

/// Below the CFA, where a call puts it.
const RETURN_ADDRESS_OFFSET: i64 = -8;

#[derive(Clone, Copy, Debug)]
pub struct State {
    cfa: Cfa,
    frame_pointer: Place,
    return_address: Place,
    /// Whether the function is where the kernel lets a signal handler return to.
    pub is_signal: bool,
}

#[derive(Clone, Copy, Debug)]
enum Cfa {
    Unset,
    Register { register: u16, offset: i64 },
    Expression(Expression),
}

/// Where the caller's value of a register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Unset,
    Nowhere,
    Unchanged,
    AtCfa(i64),
    At(Expression),
    Elsewhere,
}

/// What a `State` is used for at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    Rule(Rule),
    /// The CFA is at sp + 8, and 8 more from this byte of each 16 on.
    JumpTable {
        pushed_from: u8,
    },
    Unusable(Reason),
}

/// The instruction makes no sense here.
#[derive(Debug)]
pub struct Malformed;

impl State {
    pub fn new(is_signal: bool) -> Self {
        Self { cfa: Cfa::Unset, frame_pointer: Place::Unset, return_address: Place::Unset, is_signal }
    }

    /// Follows an instruction that changes what is said about the place; others are not for it. `initial` is what the
    /// function began with, if that is known yet.
    pub fn follow(
        &mut self,
        instruction: &CallFrameInstruction<usize>,
        initial: Option<&Self>,
        data_alignment: i64,
        section: &EhFrame<Bytes>,
    ) -> Result<(), Malformed> {
        use CallFrameInstruction as Instruction;
        let scaled = |factor: i64| factor.checked_mul(data_alignment).ok_or(Malformed);
        let signed = |value: u64| i64::try_from(value).map_err(|_| Malformed);
        match *instruction {
            Instruction::DefCfa { register, offset } => self.define_cfa(register, signed(offset)?),
            Instruction::DefCfaSf { register, factored_offset } => self.define_cfa(register, scaled(factored_offset)?),
            Instruction::DefCfaRegister { register } => *self.cfa_register()?.0 = register.0,
            Instruction::DefCfaOffset { offset } => *self.cfa_register()?.1 = signed(offset)?,
            Instruction::DefCfaOffsetSf { factored_offset } => *self.cfa_register()?.1 = scaled(factored_offset)?,
            Instruction::DefCfaExpression { expression } => {
                self.cfa = Cfa::Expression(parsed(&expression, section)?);
            }
            Instruction::Undefined { register } => self.set(register, Place::Nowhere),
            Instruction::SameValue { register } => self.set(register, Place::Unchanged),
            Instruction::Offset { register, factored_offset } => {
                self.set(register, Place::AtCfa(scaled(signed(factored_offset)?)?));
            }
            Instruction::OffsetExtendedSf { register, factored_offset } => {
                self.set(register, Place::AtCfa(scaled(factored_offset)?));
            }
            Instruction::Expression { register, expression } => {
                self.set(register, Place::At(parsed(&expression, section)?));
            }
            Instruction::ValOffset { register, .. }
            | Instruction::ValOffsetSf { register, .. }
            | Instruction::ValExpression { register, .. }
            | Instruction::Register { dest_register: register, .. } => self.set(register, Place::Elsewhere),
            Instruction::Restore { register } => self.restore(register, initial.ok_or(Malformed)?),
            _ => (),
        }
        Ok(())
    }

    fn define_cfa(&mut self, register: Register, offset: i64) {
        self.cfa = Cfa::Register { register: register.0, offset };
    }

    fn cfa_register(&mut self) -> Result<(&mut u16, &mut i64), Malformed> {
        match &mut self.cfa {
            Cfa::Register { register, offset } => Ok((register, offset)),
            _ => Err(Malformed),
        }
    }

    fn set(&mut self, register: Register, place: Place) {
        match register.0 {
            BP => self.frame_pointer = place,
            RETURN_ADDRESS => self.return_address = place,
            _ => (),
        }
    }

    fn restore(&mut self, register: Register, initial: &Self) {
        match register.0 {
            BP => self.frame_pointer = initial.frame_pointer,
            RETURN_ADDRESS => self.return_address = initial.return_address,
            _ => (),
        }
    }

    pub fn meaning(&self) -> Meaning {
        if self.return_address == Place::Nowhere {
            return Meaning::Rule(Rule::END);
        }
        if self.is_kernel_frame() {
            return Meaning::Rule(Rule::SIGNAL);
        }
        if self.return_address != Place::AtCfa(RETURN_ADDRESS_OFFSET) {
            return Meaning::Unusable(Reason::ReturnAddress);
        }
        let (kind, offset) = match self.cfa {
            Cfa::Register { register, offset } | Cfa::Expression(Expression::Address { register, offset }) => {
                (by_register(register, Kind::Sp, Kind::Bp), offset)
            }
            Cfa::Expression(Expression::Content { register, offset }) => {
                (by_register(register, Kind::DerefSp, Kind::DerefBp), offset)
            }
            Cfa::Expression(Expression::JumpTable { pushed_from: PLT_PUSHED_FROM }) => (Some(Kind::Plt), 0),
            Cfa::Expression(Expression::JumpTable { pushed_from }) => return Meaning::JumpTable { pushed_from },
            Cfa::Expression(Expression::Other) => return Meaning::Unusable(Reason::Expression),
            Cfa::Unset => return Meaning::Unusable(Reason::Malformed),
        };
        let Some(kind) = kind else { return Meaning::Unusable(Reason::Register) };
        Rule::new(kind, offset, self.frame_pointer()).map_or(Meaning::Unusable(Reason::Offset), Meaning::Rule)
    }

    /// Whether it describes exactly the registers that the kernel saved, where `Rule::SIGNAL` looks for them.
    fn is_kernel_frame(&self) -> bool {
        let saved = |offset| Place::At(Expression::Address { register: SP, offset });
        let is_saved_sp = |cfa| matches!(cfa, Cfa::Expression(Expression::Content { register: SP, offset: 160 }));
        self.is_signal && is_saved_sp(self.cfa) && self.frame_pointer == saved(120) && self.return_address == saved(168)
    }

    pub fn frame_pointer(&self) -> FramePointer {
        match self.frame_pointer {
            Place::Unset | Place::Unchanged => FramePointer::Unchanged,
            Place::AtCfa(offset) => FramePointer::AtCfa(offset),
            Place::At(Expression::Address { register: BP, offset }) => FramePointer::AtBp(offset),
            Place::At(_) | Place::Nowhere | Place::Elsewhere => FramePointer::Unknown,
        }
    }
}

/// The number in the linker's own tables, which has a kind.
const PLT_PUSHED_FROM: u8 = 11;

fn by_register(register: u16, if_sp: Kind, if_bp: Kind) -> Option<Kind> {
    match register {
        SP => Some(if_sp),
        BP => Some(if_bp),
        _ => None,
    }
}

fn parsed(expression: &gimli::UnwindExpression<usize>, section: &EhFrame<Bytes>) -> Result<Expression, Malformed> {
    let expression = expression.get(section).map_err(|_| Malformed)?;
    Ok(Expression::of(expression.0.slice()))
}
