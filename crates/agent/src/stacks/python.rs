//! A version's layout, as the kernel side takes it.

use gpuwhy_capture::{PythonFlags, PythonLayout, PythonProcess};
use gpuwhy_stacks::python::{CurrentFrame, Entry, Instruction, Interpreter};

pub fn for_kernel(interpreter: &Interpreter) -> PythonProcess {
    let layout = &interpreter.layout;
    let (cframe_frame, through_cframe) = match layout.thread.current {
        CurrentFrame::Direct => (0, 0),
        CurrentFrame::ThroughCframe(offset) => (offset, PythonFlags::PYTHON_CFRAME.0),
    };
    let (frame_entry, entry) = match layout.frame.entry {
        Entry::EveryFrame => (0, PythonFlags::PYTHON_EACH_IS_ENTRY.0),
        Entry::Flag(offset) => (offset, PythonFlags::PYTHON_HAS_IS_ENTRY.0),
        Entry::Shim { owner } => (owner, PythonFlags::PYTHON_HAS_OWNER.0),
    };
    let instruction = match layout.frame.instruction_kind {
        Instruction::ByteIndex | Instruction::UnitIndex => PythonFlags::PYTHON_INSTRUCTION_NUMBER.0,
        Instruction::Address => 0,
    };
    PythonProcess {
        layout: PythonLayout {
            runtime_interpreters: layout.runtime.interpreters_head,
            interpreter_next: layout.interpreter.next,
            interpreter_threads: layout.interpreter.threads_head,
            thread_next: layout.thread.next,
            thread_id: layout.thread.thread_id,
            thread_frame: layout.thread.frame,
            cframe_frame,
            frame_code: layout.frame.code,
            frame_previous: layout.frame.previous,
            frame_instruction: layout.frame.instruction,
            frame_entry,
            frame_bytes: layout.frame_bytes(),
            thread_bytes: layout.thread_bytes(),
            code_bytes: layout.code_bytes(),
            object_type: layout.object_type,
            code_filename: layout.code.file,
            code_name: layout.code.name,
            code_linetable: layout.code.line_table,
            code_firstlineno: layout.code.first_line,
            code_instructions: layout.code.instructions.unwrap_or_default(),
            code_qualname: layout.code.qualified_name.unwrap_or(layout.code.name),
            string_length: layout.unicode.length,
            string_head: layout.unicode.other_characters.max(layout.unicode.ascii_characters),
            bytes_length: layout.bytes.size,
            bytes_head: layout.bytes.content,
            tag_mask: layout.frame.tags.mask() as u16,
            flags: (through_cframe | entry | instruction) as u16,
            reserved: 0,
        },
        runtime: interpreter.runtime,
        code_type: interpreter.code_type,
    }
}
