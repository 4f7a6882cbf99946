//! The interpreter of a process: its version, its layout, and where its variables and its evaluation loop lie.

use std::ops::Range;
use std::path::Path;

use super::file::Symbols;
use super::layout::Layout;
use super::merge::NativeRole;
use super::offsets;
use super::refusal::Refusal;
use super::version::{SUPPORTED, Version};
use crate::memory::Memory;

/// A Python interpreter in a process. All addresses are the process's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    pub version: Version,
    pub layout: Layout,
    /// The variable `_PyRuntime`.
    pub runtime: u64,
    /// The types of code objects, strings and bytes.
    pub code_type: u64,
    pub unicode_type: u64,
    pub bytes_type: u64,
    /// The code of the evaluation loop, with the parts that the compiler put elsewhere.
    pub eval: Vec<Range<u64>>,
    /// Whether each instruction is a function of its own that the evaluation loop calls, and that the others replace.
    pub is_tail_calling: bool,
}

/// An evaluation loop with all instructions in it takes tens of kilobytes, one that calls functions about one.
const LARGEST_TAIL_CALLER: u64 = 8192;
const FIRST_TAIL_CALLER: u8 = 14;

impl Interpreter {
    /// Looks for an interpreter in a file that the process maps. `bias` is what to add to an address in the file to get
    /// the one in memory. `None` for any well-formed file without an interpreter.
    pub fn find(memory: &impl Memory, file: &Path, bias: u64) -> Result<Option<Self>, Refusal> {
        let symbols = Symbols::read(file).map_err(|error| Refusal::File(format!("{error:#}")))?;
        let Some(runtime) = &symbols.runtime else { return Ok(None) };
        Self::from_symbols(memory, &symbols, runtime.start, bias).map(Some)
    }

    fn from_symbols(memory: &impl Memory, symbols: &Symbols, runtime: u64, bias: u64) -> Result<Self, Refusal> {
        let in_memory = |address: u64| address.wrapping_add(bias);
        let required = |symbol: Option<u64>, name: &str| {
            symbol.map(in_memory).ok_or_else(|| Refusal::File(format!("the file has _PyRuntime, but no {name}")))
        };
        let runtime = in_memory(runtime);
        let version = version(memory, symbols, bias)?;
        let eval: Vec<_> = symbols.eval.iter().map(|range| in_memory(range.start)..in_memory(range.end)).collect();
        if eval.is_empty() {
            return Err(Refusal::File("the file has _PyRuntime, but no _PyEval_EvalFrameDefault".to_owned()));
        }
        let largest = symbols.eval.iter().map(|range| range.end - range.start).max().unwrap_or_default();
        Ok(Self {
            version,
            layout: layout(memory, runtime, version)?,
            runtime,
            code_type: required(symbols.code_type, "PyCode_Type")?,
            unicode_type: required(symbols.unicode_type, "PyUnicode_Type")?,
            bytes_type: required(symbols.bytes_type, "PyBytes_Type")?,
            eval,
            is_tail_calling: version.minor >= FIRST_TAIL_CALLER && largest <= LARGEST_TAIL_CALLER,
        })
    }

    /// What native frames are to the interpreter, given their addresses from the innermost outwards. Return addresses
    /// have to be one less, so that they lie in the calling instruction.
    pub fn roles(&self, addresses: &[u64]) -> Vec<NativeRole> {
        let is_loop = |address: &u64| self.eval.iter().any(|range| range.contains(address));
        let role = |index: usize, address: &u64| {
            if is_loop(address) {
                return NativeRole::EvalLoop;
            }
            let is_inside = self.is_tail_calling && addresses.get(index + 1).is_some_and(is_loop);
            if is_inside { NativeRole::EvalStep } else { NativeRole::Other }
        };
        addresses.iter().enumerate().map(|(index, address)| role(index, address)).collect()
    }
}

fn version(memory: &impl Memory, symbols: &Symbols, bias: u64) -> Result<Version, Refusal> {
    let Some(variable) = symbols.version else {
        return symbols
            .version_by_functions()
            .ok_or_else(|| Refusal::Unsupported(format!("a Python before 3.9 is not supported ({SUPPORTED} are)")));
    };
    let hex = memory
        .read_u64(variable.wrapping_add(bias))
        .ok_or_else(|| Refusal::NotReady("the interpreter's version cannot be read".to_owned()))?;
    Version::from_hex(hex).ok_or_else(|| {
        Refusal::Unsupported(format!("version {hex:#010x} is no release of Python 3 ({SUPPORTED} are supported)"))
    })
}

fn layout(memory: &impl Memory, runtime: u64, version: Version) -> Result<Layout, Refusal> {
    if offsets::tells_layout(version) {
        return offsets::read(memory, runtime, version);
    }
    Layout::of(version.minor).copied().ok_or_else(|| Refusal::unsupported(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_of_a_tail_calling_loop_is_the_frame_inside_it() {
        let interpreter = Interpreter {
            version: Version { minor: 14, micro: None },
            layout: *Layout::of(12).unwrap(),
            runtime: 0,
            code_type: 0,
            unicode_type: 0,
            bytes_type: 0,
            eval: Vec::from([Range { start: 100, end: 200 }]),
            is_tail_calling: true,
        };
        use NativeRole::{EvalLoop, EvalStep, Other};
        assert_eq!(interpreter.roles(&[1, 2, 150, 150, 3]), [Other, EvalStep, EvalLoop, EvalLoop, Other]);
        let ordinary = Interpreter { is_tail_calling: false, ..interpreter };
        assert_eq!(ordinary.roles(&[1, 2, 150, 3]), [Other, Other, EvalLoop, Other]);
    }
}
