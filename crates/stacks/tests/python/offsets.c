// Where the fields lie that a walk over Python's frames reads, according to the headers of one interpreter: one line
// each, `name value`. The table in src/python/layout.rs has to say the same.
//
//     cc -I INCLUDE -I INCLUDE/internal offsets.c -o offsets && ./offsets
#define Py_BUILD_CORE 1
#include <Python.h>

#include <stddef.h>
#include <stdio.h>

#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"
#if PY_VERSION_HEX >= 0x030b0000
#include "internal/pycore_frame.h"
#else
#include <frameobject.h>
#endif
#if PY_VERSION_HEX >= 0x030e0000
#include "internal/pycore_interpframe.h"
#endif

#define OFFSET(name, type, field) printf("%s %zu\n", name, offsetof(type, field))
#define VALUE(name, value) printf("%s %zu\n", name, (size_t)(value))

static void print_states(void)
{
	OFFSET("runtime.interpreters_head", _PyRuntimeState, interpreters.head);
	OFFSET("interpreter.next", PyInterpreterState, next);
#if PY_VERSION_HEX >= 0x030b0000
	OFFSET("interpreter.threads_head", PyInterpreterState, threads.head);
#else
	OFFSET("interpreter.threads_head", PyInterpreterState, tstate_head);
#endif
	OFFSET("thread.next", PyThreadState, next);
	OFFSET("thread.thread_id", PyThreadState, thread_id);
#if PY_VERSION_HEX >= 0x030d0000
	OFFSET("thread.frame", PyThreadState, current_frame);
#elif PY_VERSION_HEX >= 0x030b0000
	OFFSET("thread.frame", PyThreadState, cframe);
	OFFSET("cframe.current_frame", _PyCFrame, current_frame);
#else
	OFFSET("thread.frame", PyThreadState, frame);
#endif
}

static void print_frame(void)
{
#if PY_VERSION_HEX >= 0x030d0000
	OFFSET("frame.code", _PyInterpreterFrame, f_executable);
	OFFSET("frame.previous", _PyInterpreterFrame, previous);
	OFFSET("frame.instruction", _PyInterpreterFrame, instr_ptr);
	OFFSET("frame.owner", _PyInterpreterFrame, owner);
#elif PY_VERSION_HEX >= 0x030b0000
	OFFSET("frame.code", _PyInterpreterFrame, f_code);
	OFFSET("frame.previous", _PyInterpreterFrame, previous);
	OFFSET("frame.instruction", _PyInterpreterFrame, prev_instr);
#if PY_VERSION_HEX >= 0x030c0000
	OFFSET("frame.owner", _PyInterpreterFrame, owner);
#else
	OFFSET("frame.is_entry", _PyInterpreterFrame, is_entry);
#endif
#else
	OFFSET("frame.code", PyFrameObject, f_code);
	OFFSET("frame.previous", PyFrameObject, f_back);
	OFFSET("frame.instruction", PyFrameObject, f_lasti);
#endif
#if PY_VERSION_HEX >= 0x030e0000
	VALUE("owner.first_shim", FRAME_OWNED_BY_INTERPRETER);
#elif PY_VERSION_HEX >= 0x030c0000
	VALUE("owner.first_shim", FRAME_OWNED_BY_CSTACK);
#endif
}

static void print_code(void)
{
	OFFSET("code.first_line", PyCodeObject, co_firstlineno);
	OFFSET("code.file", PyCodeObject, co_filename);
	OFFSET("code.name", PyCodeObject, co_name);
#if PY_VERSION_HEX >= 0x030b0000
	OFFSET("code.qualified_name", PyCodeObject, co_qualname);
	OFFSET("code.instructions", PyCodeObject, co_code_adaptive);
#endif
#if PY_VERSION_HEX >= 0x030a0000
	OFFSET("code.line_table", PyCodeObject, co_linetable);
#else
	OFFSET("code.line_table", PyCodeObject, co_lnotab);
#endif
}

// Which bits of a string's state are a field's, found by setting it.
static size_t bits_of(PyASCIIObject *text)
{
	unsigned int bits;
	memcpy(&bits, &text->state, sizeof(bits));
	return bits;
}

static void print_objects(void)
{
	PyASCIIObject text;
	OFFSET("object.type", PyObject, ob_type);
	OFFSET("unicode.length", PyASCIIObject, length);
	OFFSET("unicode.state", PyASCIIObject, state);
	VALUE("unicode.ascii_characters", sizeof(PyASCIIObject));
	VALUE("unicode.other_characters", sizeof(PyCompactUnicodeObject));
	memset(&text, 0, sizeof(text));
	text.state.kind = 7;
	VALUE("state.kind", bits_of(&text));
	memset(&text, 0, sizeof(text));
	text.state.compact = 1;
	VALUE("state.compact", bits_of(&text));
	memset(&text, 0, sizeof(text));
	text.state.ascii = 1;
	VALUE("state.ascii", bits_of(&text));
	OFFSET("bytes.size", PyVarObject, ob_size);
	OFFSET("bytes.content", PyBytesObject, ob_sval);
}

int main(void)
{
	print_states();
	print_frame();
	print_code();
	print_objects();
	return 0;
}
