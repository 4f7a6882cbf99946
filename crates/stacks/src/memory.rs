//! Memory of another process, only ever read.

/// Something that holds the bytes of a process.
pub trait Memory {
    /// Fills `into` with the bytes at an address, or says that it cannot; then nothing is known about `into`.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;

    fn read_u64(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    fn read_u32(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes).then(|| u32::from_le_bytes(bytes))
    }
}

/// A live process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMemory {
    pub pid: u32,
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
        // SAFETY: `local` is the caller's buffer, which outlives the call; the other address is only read, by the kernel,
        // in the other process.
        let read =
            unsafe { libc::process_vm_readv(self.pid.cast_signed(), &raw const local, 1, &raw const remote, 1, 0) };
        usize::try_from(read).is_ok_and(|read| read == into.len())
    }
}

/// Pieces of memory that were copied while they were there.
#[derive(Clone, Copy, Debug)]
pub struct CopiedMemory<'a> {
    /// Addresses, and what lies there.
    pub pieces: &'a [(u64, Vec<u8>)],
}

impl Memory for CopiedMemory<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let piece = |(start, bytes): &(u64, Vec<u8>)| {
            let from = usize::try_from(address.checked_sub(*start)?).ok()?;
            let found = bytes.get(from..from.checked_add(into.len())?)?;
            into.copy_from_slice(found);
            Some(())
        };
        self.pieces.iter().find_map(piece).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_memory_is_read_and_what_is_not_mapped_is_not() {
        let own = ProcessMemory { pid: std::process::id() };
        let value = 0x1234_5678_9abc_def0_u64;
        assert_eq!(own.read_u64(&raw const value as u64), Some(value));
        assert_eq!(own.read_u64(8), None);
    }

    #[test]
    fn a_copy_has_what_was_copied_and_nothing_else() {
        let pieces = [(16, vec![1, 0, 0, 0, 0, 0, 0, 0, 2]), (100, vec![7; 8])];
        let copy = CopiedMemory { pieces: &pieces };
        assert_eq!(copy.read_u64(16), Some(1));
        assert_eq!(copy.read_u64(17), Some(2 << 56));
        assert_eq!(copy.read_u32(100), Some(0x0707_0707));
        assert_eq!([copy.read_u64(18), copy.read_u64(8), copy.read_u64(u64::MAX)], [None; 3]);
    }
}
