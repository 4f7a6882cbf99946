/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * How Python's frames are walked: from the runtime's variable over interpreters to the state of the thread, and from
 * its frame to the frame that called it. What travels is the address of each code object and the instruction in it;
 * names and lines are read once for each code object, by user space. The twin of this in Rust, which says what is
 * meant, is in python/walk.rs of the stacks crate. Provided by whoever includes it: see unwind.h.
 */
#ifndef GPUWHY_UNWIND_PYTHON_H
#define GPUWHY_UNWIND_PYTHON_H

#include "unwind.h"

/* Somebody may want to see each code object, whose head is in the buffer. */
#ifndef NOTE_CODE
#define NOTE_CODE(walk, layout, code, fingerprint) (void)0
#endif

enum {
	MAX_INTERPRETERS = 16,
	/* Threads over all interpreters, and frames. */
	MAX_PYTHON_STEPS = 640,
};

static __always_inline bool read_python(struct walk *walk, __u32 bytes, __u64 address)
{
	return address && bytes <= PYTHON_CODE_READ &&
	       read_memory(walk, walk->python.buffer, bytes & (2 * PYTHON_CODE_READ - 1), address);
}

static __always_inline __u64 python_field(struct walk *walk, __u32 offset)
{
	return *(__u64 *)((__u8 *)walk->python.buffer + MASKED(offset, PYTHON_CODE_READ));
}

static __always_inline bool read_pointer(struct walk *walk, __u64 *into, __u64 address)
{
	if (!address || !read_memory(walk, walk->pair, 8, address))
		return false;
	*into = walk->pair[0];
	return true;
}

static __always_inline void end_python(struct walk *walk, enum python_end end)
{
	walk->record.python_end = end;
}

/* The frame a thread is in; 0 when it is in none. */
static __always_inline bool read_current_frame(struct walk *walk, const struct python_layout *layout)
{
	walk->python.frame = python_field(walk, layout->thread_frame);
	if (!(layout->flags & PYTHON_CFRAME) || !walk->python.frame)
		return true;
	return read_pointer(walk, &walk->python.frame, walk->python.frame + layout->cframe_frame);
}

/*
 * Looks at one state of a thread and goes on to the next. Returns 0 when there is no further one. A thread has a state
 * in each interpreter that it has been in; `python.frame` is set when it is in a frame there.
 */
static __always_inline int next_python_thread(struct walk *walk, const struct python_layout *layout)
{
	struct python_walk *python = &walk->python;
	__u64 thread = python->thread;

	if (!thread) {
		/* On to the next interpreter: newer ones come first, and call into older ones never. */
		if (!python->interpreter)
			return 0;
		if (python->interpreters >= MAX_INTERPRETERS) {
			end_python(walk, PYTHON_TOO_DEEP);
			return 0;
		}
		python->interpreters++;
		if (!read_pointer(walk, &python->thread, python->interpreter + layout->interpreter_threads) ||
		    !read_pointer(walk, &python->interpreter, python->interpreter + layout->interpreter_next)) {
			end_python(walk, PYTHON_UNREADABLE);
			return 0;
		}
		return 1;
	}
	if (!read_python(walk, layout->thread_bytes, thread)) {
		end_python(walk, PYTHON_UNREADABLE);
		return 0;
	}
	python->thread = python_field(walk, layout->thread_next);
	if (python_field(walk, layout->thread_id) != python->thread_id)
		return 1;
	if (!read_current_frame(walk, layout)) {
		end_python(walk, PYTHON_UNREADABLE);
		return 0;
	}
	end_python(walk, PYTHON_COMPLETE);
	/* It has one state in each interpreter. */
	python->thread = 0;
	return 1;
}

static __always_inline __u64 rotated(__u64 value, __u32 by)
{
	return value << by | value >> (64 - by);
}

/* How long a line table is and how it begins: code that is compiled again and again may come to lie at the same place.
 */
static __always_inline __u64 lines_mark(struct walk *walk, const struct python_layout *layout)
{
	__u64 lines = python_field(walk, layout->code_linetable), length = 0, start = 0;

	if (!read_pointer(walk, &length, lines + layout->bytes_length) ||
	    !read_pointer(walk, &start, lines + layout->bytes_head))
		return 0;
	if (length < 8)
		start &= (1ULL << 8 * (length & 7)) - 1;
	return start * 0x9e3779b97f4a7c15ULL ^ length;
}

/* Changes when another code object takes the place of this one; as in python/code.rs. */
static __always_inline __u32 code_fingerprint(struct walk *walk, const struct python_layout *layout)
{
	__u32 first_line = python_field(walk, layout->code_firstlineno);
	__u64 fold = python_field(walk, layout->code_filename) ^ rotated(python_field(walk, layout->code_name), 16) ^
		     rotated(python_field(walk, layout->code_linetable), 32) ^ lines_mark(walk, layout);

	return ((__u32)fold ^ (__u32)(fold >> 32) ^ (first_line << 7 | first_line >> 25)) & 0x7fffffff;
}

/* No code of the program, but what 3.13 and later put below an __init__ that a class calls. */
static __always_inline bool is_init_cleanup(struct walk *walk, const struct python_layout *layout)
{
	return python_field(walk, layout->code_filename) == python_field(walk, layout->code_name) &&
	       !(__u32)python_field(walk, layout->code_firstlineno);
}

/* Writes down a frame of Python and goes on to the one that called it. Returns 0 when that fails. */
static __always_inline int leave_python_frame(struct walk *walk, const struct python_layout *layout)
{
	struct python_walk *python = &walk->python;
	__u64 code, instruction, previous;
	bool is_entry, is_loop;
	__u32 fingerprint;
	__u8 entry;

	if (walk->record.python_frames >= MAX_PYTHON_FRAMES) {
		end_python(walk, PYTHON_TOO_DEEP);
		return 0;
	}
	if (!read_python(walk, layout->frame_bytes, python->frame)) {
		end_python(walk, PYTHON_UNREADABLE);
		return 0;
	}
	code = python_field(walk, layout->frame_code) & ~(__u64)layout->tag_mask;
	previous = python_field(walk, layout->frame_previous);
	instruction = python_field(walk, layout->frame_instruction);
	entry = python_field(walk, layout->frame_entry);
	is_entry = layout->flags & PYTHON_EACH_IS_ENTRY || (layout->flags & PYTHON_HAS_IS_ENTRY && entry);
	is_loop = layout->flags & PYTHON_HAS_OWNER && entry >= PYTHON_OWNED_BY_LOOP;
	if (previous == python->frame) {
		end_python(walk, PYTHON_BROKEN);
		return 0;
	}
	python->frame = previous;
	walk->record.python_frames++;
	if (is_loop) {
		/* What the evaluation loop itself puts below the frames it was called for. */
		put_word(walk, 0);
		put_word(walk, 0);
		return 1;
	}
	if (!read_python(walk, layout->code_bytes, code)) {
		end_python(walk, PYTHON_UNREADABLE);
		walk->record.python_frames--;
		return 0;
	}
	if (python_field(walk, layout->object_type) != python->code_type) {
		end_python(walk, PYTHON_BROKEN);
		walk->record.python_frames--;
		return 0;
	}
	fingerprint = code_fingerprint(walk, layout);
	if (is_init_cleanup(walk, layout)) {
		walk->record.python_frames--;
		return 1;
	}
	if (!(layout->flags & PYTHON_INSTRUCTION_NUMBER))
		instruction -= code + layout->code_instructions;
	NOTE_CODE(walk, layout, code, fingerprint);
	put_word(walk, code);
	put_word(walk, (__u32)instruction | (__u64)fingerprint << 32 | (__u64)is_entry << 63);
	return 1;
}

/* Returns 0 when there is nothing more to be found. */
static __always_inline int python_step(struct walk *walk, const struct python_layout *layout)
{
	return walk->python.frame ? leave_python_frame(walk, layout) : next_python_thread(walk, layout);
}

#endif
