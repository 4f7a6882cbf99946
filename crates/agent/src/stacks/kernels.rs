//! Which kernel a launch launches.
//!
//! A launch through the runtime names the host function that stands for the kernel: its symbol says which. A launch
//! through the driver names an object of the driver's, which keeps a pointer to the kernel's name. Where that lies
//! is not documented, so it is believed only as long as what is found there can be a name, for this process.

use gpuwhy_stacks::memory::{Memory, ProcessMemory};
use gpuwhy_stacks::symbols::readable;

/// Where a `CUfunction` keeps the address of its kernel's name (driver 580).
const NAME_POINTER: u64 = 8;
const MOST_NAME: usize = 4096;
/// What can be read at once lies within a page.
const PAGE: u64 = 4096;

/// How often the driver's objects of a process looked as expected.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trust {
    named: u32,
    refused: u32,
}

/// So many that do not look as expected, and more than those that do: the driver keeps names elsewhere.
const TOO_MANY: u32 = 8;

impl Trust {
    /// The name of the kernel that an object of the driver's stands for.
    pub fn driver_name(&mut self, pid: u32, handle: u64) -> Option<String> {
        if self.refused >= TOO_MANY && self.refused > self.named {
            return None;
        }
        let name = read_name(&ProcessMemory { pid }, handle);
        match name {
            Some(_) => self.named += 1,
            None => self.refused += 1,
        }
        name
    }
}

fn read_name(memory: &impl Memory, handle: u64) -> Option<String> {
    let address = memory.read_u64(handle.checked_add(NAME_POINTER)?)?;
    let symbol = read_symbol(memory, address)?;
    is_identifier(&symbol).then(|| readable(&symbol))
}

/// A text that ends with a zero, page by page.
fn read_symbol(memory: &impl Memory, address: u64) -> Option<String> {
    let mut text = Vec::new();
    let mut at = address;
    while text.len() < MOST_NAME {
        let mut piece = vec![0; (PAGE - at % PAGE) as usize];
        if !memory.read(at, &mut piece) {
            return None;
        }
        if let Some(end) = piece.iter().position(|&byte| byte == 0) {
            text.extend(&piece[..end]);
            return String::from_utf8(text).ok();
        }
        at = at.checked_add(piece.len() as u64)?;
        text.extend(piece);
    }
    None
}

/// What a compiler can call a kernel.
fn is_identifier(symbol: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'.');
    symbol.len() > 1
        && symbol.bytes().next().is_some_and(is_letter)
        && symbol.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use gpuwhy_stacks::memory::CopiedMemory;

    use super::*;

    fn function_at(name: &[u8]) -> [(u64, Vec<u8>); 2] {
        let object = [0u64.to_le_bytes(), 0x2ff0u64.to_le_bytes()].concat();
        let mut pages = vec![0; 0x1010];
        pages[..name.len()].copy_from_slice(name);
        [(0x1000, object), (0x2ff0, pages)]
    }

    fn name_of(name: &[u8]) -> Option<String> {
        read_name(&CopiedMemory { pieces: &function_at(name) }, 0x1000)
    }

    #[test]
    fn a_function_of_the_driver_says_which_kernel_it_is() {
        assert_eq!(name_of(b"_Z3addPfS_").as_deref(), Some("add(float*, float*)"));
        assert_eq!(name_of(b"sm80_xmma_gemm_f32f32_over_a_page").as_deref(), Some("sm80_xmma_gemm_f32f32_over_a_page"));
    }

    #[test]
    fn what_cannot_be_a_name_is_none() {
        assert_eq!(name_of(b""), None);
        assert_eq!(name_of(b"7seven"), None);
        assert_eq!(name_of(b"two words"), None);
        assert_eq!(name_of("\u{1b}[31m".as_bytes()), None);
        assert_eq!(read_name(&CopiedMemory { pieces: &[] }, 0x1000), None);
        assert_eq!(read_name(&CopiedMemory { pieces: &[] }, u64::MAX), None);
    }
}
