/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * How a native stack is walked: by rows compiled from .eh_frame where the code has them, by frame pointers where it
 * keeps them or has nothing else. One call of walk_frame leaves one frame.
 *
 * Nothing here is BPF: tests compile it for user space, on memory of their own making. Whoever includes it provides
 *   bool read_memory(struct walk *, void *into, __u32 bytes, __u64 address)   of the thread that is walked
 *   const struct code_mapping *mapping_at(__u32 index)                        a row of all mappings
 *   const struct unwind_shard *shard_at(__u32 index)                          a piece of all tables
 *   __u64 hidden_return(struct walk *, __u64 slot)   what a return probe has replaced on the stack; 0 for nothing
 * and MASKED (see kernel.bpf.h). The verifier forgets what it knows of numbers that lie in a map: the limits of a
 * binary search are kept in struct walk, so that it has one state to look at for each step instead of two to the power
 * of steps.
 */
#ifndef GPUWHY_UNWIND_H
#define GPUWHY_UNWIND_H

#include "wire.h"

/*
 * Stacks are much alike, and the way to a rule leads over memory that nobody else uses: rules may be remembered by
 * address. RECALL_RULE gives 0 for one that is not.
 */
#ifndef RECALL_RULE
#define RECALL_RULE(walk, address)	   0
#define REMEMBER_RULE(walk, address, rule) (void)0
#endif

/* One walk, and the record it fills. */
struct walk {
	/* The frame that is to be left. */
	__u64 ip;
	__u64 sp;
	__u64 bp;
	/* Whether ip is where a call returns to: what is executing is the call before it. */
	__u32 is_return;
	/* Whether a frame pointer led here without a table that says that it can be trusted, or to a frame before. */
	__u32 is_doubtful;
	__u32 was_doubtful;
	/* The process's mappings, and the last one that was found. */
	__u32 version;
	__u32 first_mapping;
	__u32 mappings;
	__u32 mapping;
	__u32 words;
	__u32 low;
	__u32 high;
	__u64 pair[2];
	struct python_walk {
		__u64 runtime;
		__u64 code_type;
		/* Of the thread, as the C library numbers it. */
		__u64 thread_id;
		__u64 interpreter;
		__u64 thread;
		__u64 frame;
		__u32 layout;
		__u32 interpreters;
		__u64 buffer[(PYTHON_CODE_READ + 8) / 8];
	} python;
	struct stack_record record;
};

static __always_inline void put_word(struct walk *walk, __u64 word)
{
	__u64 hash = (walk->record.hash ^ word) * 0x9e3779b97f4a7c15ULL;

	walk->record.hash = hash ^ hash >> 29;
	walk->record.words[MASKED(walk->words, STACK_WORDS)] = word;
	walk->words++;
}

/* What frame pointers alone have led through may have left out functions that keep none. */
static __always_inline int end_walk(struct walk *walk, enum walk_end end)
{
	walk->record.end = end == WALK_COMPLETE && walk->was_doubtful ? WALK_FRAME_POINTERS : end;
	return 0;
}

/* The code that an address lies in. Frames that call each other are often in the same file. */
static __always_inline const struct code_mapping *find_mapping(struct walk *walk, __u64 address)
{
	const struct code_mapping *mapping = mapping_at(walk->mapping);

	if (walk->mappings && mapping && address >= mapping->start && address < mapping->end)
		return mapping;
	walk->low = 0;
	walk->high = walk->mappings;
	for (int i = 0; i < 17; i++) {
		__u32 low = walk->low, high = walk->high, middle = (low + high) / 2;

		if (low >= high)
			break;
		mapping = mapping_at(walk->first_mapping + middle);
		if (!mapping)
			return 0;
		if (address < mapping->start)
			walk->high = middle;
		else
			walk->low = middle + 1;
	}
	if (!walk->low)
		return 0;
	walk->mapping = walk->first_mapping + walk->low - 1;
	mapping = mapping_at(walk->mapping);
	return mapping && address >= mapping->start && address < mapping->end ? mapping : 0;
}

static __always_inline __u32 find_rule(struct walk *walk, const struct code_mapping *mapping, __u64 address)
{
	const struct unwind_shard *shard = mapping->rows ? shard_at(mapping->shard) : 0;

	/* Rows tell of the first 4 GB of a file. */
	if (!shard || address >> 32)
		return RULE_NONE;
	walk->low = mapping->first_row;
	walk->high = mapping->first_row + mapping->rows;
	for (int i = 0; i < 17; i++) {
		__u32 low = walk->low, high = walk->high, middle = (low + high) / 2;

		if (low >= high)
			break;
		if (address < shard->rows[MASKED(middle, SHARD_ROWS)].address)
			walk->high = middle;
		else
			walk->low = middle + 1;
	}
	if (walk->low == mapping->first_row)
		return RULE_NONE;
	return shard->rows[MASKED(walk->low - 1, SHARD_ROWS)].rule;
}

/* Whether the instruction before an address is a call, as far as its bytes tell. */
static __always_inline bool follows_call(struct walk *walk, __u64 address)
{
	__u8 *code = (__u8 *)walk->pair;

	if (!read_memory(walk, code, 8, address - 8))
		return false;
	/* call to an offset; call through a register or memory, of 2, 3, 4, 6 and 7 bytes */
	return code[3] == 0xe8 || (code[6] == 0xff && (code[7] & 0x38) == 0x10) ||
	       (code[5] == 0xff && (code[6] & 0x38) == 0x10) || (code[4] == 0xff && (code[5] & 0x38) == 0x10) ||
	       (code[2] == 0xff && (code[3] & 0x38) == 0x10) || (code[1] == 0xff && (code[2] & 0x38) == 0x10);
}

/* Leaves a frame that keeps a frame pointer. Returns 0 when there is none. */
static __always_inline int follow_frame_pointer(struct walk *walk)
{
	__u64 bp = walk->bp;

	if (bp < walk->sp || bp & 7 || !read_memory(walk, walk->pair, 16, bp))
		return 0;
	walk->sp = bp + 16;
	walk->bp = walk->pair[0];
	walk->ip = walk->pair[1];
	walk->is_return = 1;
	return 1;
}

/* The registers before a signal, from what the kernel has put on the stack around the handler. */
static __always_inline int leave_handler(struct walk *walk)
{
	__u64 sp = walk->sp;

	/* In struct rt_sigframe the stack pointer comes after rbp, rbx, rdx, rax and rcx, and then the instruction. */
	if (!read_memory(walk, walk->pair, 16, sp + 160))
		return end_walk(walk, WALK_UNREADABLE);
	walk->sp = walk->pair[0];
	walk->ip = walk->pair[1];
	if (!read_memory(walk, walk->pair, 8, sp + 120))
		return end_walk(walk, WALK_UNREADABLE);
	walk->bp = walk->pair[0];
	walk->is_return = 0;
	return 1;
}

/* Where the frame ends, for the rules that compute it. */
static __always_inline __u64 frame_end(struct walk *walk, __u32 rule)
{
	__s64 offset = (__s64)((__s32)rule >> 16) * 8;

	switch (rule & 15) {
	case RULE_SP:
		return walk->sp + offset;
	case RULE_BP:
		return walk->bp + offset;
	case RULE_PLT:
		return walk->sp + 8 + ((walk->ip & 15) >= 11 ? 8 : 0);
	case RULE_AT_BP:
		return read_memory(walk, walk->pair, 8, walk->bp + offset) ? walk->pair[0] : 0;
	case RULE_AT_SP:
		return read_memory(walk, walk->pair, 8, walk->sp + offset) ? walk->pair[0] : 0;
	}
	return 0;
}

static __always_inline int follow_rule(struct walk *walk, __u32 rule)
{
	__u32 bp_rule = (rule >> 4) & 3;
	__s64 bp_offset = (__s64)((__s32)(rule << 16) >> 22) * 8;
	__u64 end = frame_end(walk, rule);

	if (!end)
		return end_walk(walk, WALK_UNREADABLE);
	/* The return address takes 8 bytes. */
	if (end < walk->sp + 8 || end & 7)
		return end_walk(walk, WALK_NO_PROGRESS);
	if (bp_rule == BP_SAVED && bp_offset == -16) {
		if (!read_memory(walk, walk->pair, 16, end - 16))
			return end_walk(walk, WALK_UNREADABLE);
		walk->bp = walk->pair[0];
		walk->ip = walk->pair[1];
	} else {
		__u64 saved_at = bp_rule == BP_SAVED ? end + bp_offset : walk->bp + bp_offset;

		if (bp_rule == BP_SAVED || bp_rule == BP_AT_BP) {
			if (!read_memory(walk, walk->pair, 8, saved_at))
				return end_walk(walk, WALK_UNREADABLE);
			walk->bp = walk->pair[0];
		} else if (bp_rule == BP_UNKNOWN) {
			walk->bp = 0;
		}
		if (!read_memory(walk, walk->pair, 8, end - 8))
			return end_walk(walk, WALK_UNREADABLE);
		walk->ip = walk->pair[0];
	}
	walk->sp = end;
	walk->is_return = 1;
	return 1;
}

/* Whether the address that a frame pointer led to is where some call returns to; otherwise it is no frame. */
static __always_inline bool is_believable(struct walk *walk, bool is_code)
{
	return !walk->is_doubtful || (is_code && follows_call(walk, walk->ip));
}

/* Leaves the frame as its code's rule says. */
static __always_inline int leave_by_rule(struct walk *walk, __u32 rule)
{
	walk->is_doubtful = 0;
	switch (rule & 15) {
	case RULE_NONE:
		return end_walk(walk, WALK_NO_RULE);
	case RULE_END:
		return end_walk(walk, WALK_COMPLETE);
	case RULE_SIGNAL:
		return leave_handler(walk);
	}
	return follow_rule(walk, rule);
}

static __always_inline void put_frame(struct walk *walk)
{
	put_word(walk, walk->ip);
	walk->record.native_frames++;
}

/* The same where nothing is remembered of the address. */
static __always_inline int look_up_and_leave(struct walk *walk)
{
	const struct code_mapping *mapping = find_mapping(walk, walk->ip - walk->is_return);
	__u64 address;
	__u32 rule;

	if (!mapping && walk->is_return) {
		__u64 hidden = hidden_return(walk, walk->sp - 8);

		if (hidden) {
			walk->ip = hidden;
			mapping = find_mapping(walk, walk->ip - 1);
		}
	}
	/* By convention there is nothing above a frame that returns to nowhere. */
	if (!walk->ip)
		return end_walk(walk, walk->is_return ? WALK_COMPLETE : WALK_NO_MAPPING);
	if (!is_believable(walk, mapping))
		return end_walk(walk, WALK_NO_FRAME_POINTER);
	put_frame(walk);
	if (!mapping)
		return end_walk(walk, WALK_NO_MAPPING);
	if (!mapping->rows) {
		walk->is_doubtful = 1;
		walk->was_doubtful = 1;
		return follow_frame_pointer(walk) || end_walk(walk, WALK_NO_FRAME_POINTER);
	}
	walk->is_doubtful = 0;
	address = walk->ip - walk->is_return;
	/* The outermost function has none even there, and the table says that it is the outermost. */
	if (mapping->flags & MAPPING_FRAME_POINTERS && walk->is_return && follow_frame_pointer(walk))
		return 1;
	rule = find_rule(walk, mapping, address - mapping->bias);
	REMEMBER_RULE(walk, address, rule);
	return leave_by_rule(walk, rule);
}

/*
 * Writes down the frame and goes on to the one that called it. Returns 0 when there is no way on; `record.end` says
 * why.
 */
static __always_inline int leave_frame(struct walk *walk)
{
	__u32 rule;

	if (walk->record.native_frames >= MAX_NATIVE_FRAMES)
		return end_walk(walk, WALK_TOO_DEEP);
	rule = RECALL_RULE(walk, walk->ip - walk->is_return);
	if (!rule || !is_believable(walk, true))
		return look_up_and_leave(walk);
	put_frame(walk);
	return leave_by_rule(walk, rule);
}

#endif
