/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The walker of the kernel side, for user space: what it walks on comes from the caller. For tests and the fuzzer; the
 * loops around the steps are those of stacks.bpf.h.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))

#define MASKED(index, size)                                                                                            \
	({                                                                                                             \
		_Static_assert(((size) & ((size) - 1)) == 0, "not a power of two");                                    \
		(__u64)(index) & ((size) - 1);                                                                         \
	})

struct walk;
struct code_mapping;
struct unwind_shard;

static bool read_memory(struct walk *walk, void *into, __u32 bytes, __u64 address);
static const struct code_mapping *mapping_at(__u32 index);
static const struct unwind_shard *shard_at(__u32 index);
static __u64 hidden_return(struct walk *walk, __u64 slot);

#include "unwind_python.h"

/* What a walk may look at. */
struct world {
	void *context;
	bool (*read)(void *context, __u64 address, void *into, __u32 bytes);
	/* Returns 0 for nothing; may be absent. */
	__u64 (*hidden_return)(void *context, __u64 slot);
	const struct code_mapping *mappings;
	const struct unwind_shard *const *shards;
	const struct walked_process *process;
	/* Absent when Python's frames are not to be walked. */
	const struct python_layout *layout;
	__u32 mapping_count;
	__u32 shard_count;
};

/* Where a walk begins. */
struct start {
	__u64 ip;
	__u64 sp;
	__u64 bp;
	__u64 thread_id;
};

struct walked {
	__u32 python_steps;
	__u32 native_steps;
	/* Words of the record that are filled. */
	__u64 words;
	struct stack_record record;
};

/* What lies in memory that nobody has written. */
#define STALE 0xa5

static _Thread_local const struct world *world;

static bool is_inside(const void *into, __u32 bytes, const void *room, size_t size)
{
	return into >= room && (const __u8 *)into + bytes <= (const __u8 *)room + size;
}

/* A read that fails leaves garbage: nobody may use it. */
static bool read_memory(struct walk *walk, void *into, __u32 bytes, __u64 address)
{
	if (!is_inside(into, bytes, walk->pair, sizeof(walk->pair)) &&
	    !is_inside(into, bytes, walk->python.buffer, sizeof(walk->python.buffer)))
		abort();
	memset(into, STALE, bytes);
	return world->read(world->context, address, into, bytes);
}

static const struct code_mapping *mapping_at(__u32 index)
{
	return index < world->mapping_count ? &world->mappings[index] : 0;
}

static const struct unwind_shard *shard_at(__u32 index)
{
	return index < world->shard_count ? world->shards[index] : 0;
}

static __u64 hidden_return(struct walk *walk, __u64 slot)
{
	(void)walk;
	return world->hidden_return ? world->hidden_return(world->context, slot) : 0;
}

/* As in stacks.bpf.h. Returns the number of steps. */
static __u32 walk_python(struct walk *walk, __u64 thread_id)
{
	struct python_walk *python = &walk->python;

	if (!world->layout)
		return 0;
	walk->record.python_end = PYTHON_NO_THREAD;
	python->code_type = world->process->python_code_type;
	python->thread_id = thread_id;
	python->thread = 0;
	python->frame = 0;
	python->interpreters = 0;
	if (!read_pointer(walk, &python->interpreter,
			  world->process->python_runtime + world->layout->runtime_interpreters)) {
		walk->record.python_end = PYTHON_UNREADABLE;
		return 0;
	}
	for (__u32 i = 0; i < MAX_PYTHON_STEPS; i++)
		if (!python_step(walk, world->layout))
			return i + 1;
	end_python(walk, PYTHON_TOO_DEEP);
	return MAX_PYTHON_STEPS;
}

static __u32 walk_native(struct walk *walk)
{
	walk->record.end = WALK_TOO_DEEP;
	walk->first_mapping = world->process->first_mapping;
	walk->mappings = world->process->mappings;
	walk->mapping = world->process->first_mapping;
	for (__u32 i = 0; i < MAX_NATIVE_FRAMES + 1; i++)
		if (!leave_frame(walk))
			return i + 1;
	return MAX_NATIVE_FRAMES + 1;
}

/* The kernel side's memory for a walk holds what the last one left there. */
static void begin_walk(struct walk *walk, const struct start *from)
{
	memset(walk, STALE, sizeof(*walk));
	memset(&walk->record, 0, offsetof(struct stack_record, words));
	walk->record.head.kind = RECORD_STACK;
	walk->record.identity = world->process->identity;
	walk->record.hash = world->process->identity;
	walk->words = 0;
	walk->ip = from->ip;
	walk->sp = from->sp;
	walk->bp = from->bp;
	walk->is_return = 0;
	walk->is_doubtful = 0;
	walk->was_doubtful = 0;
}

void walk_in_user_space(const struct world *in, const struct start *from, struct walked *walked);

void walk_in_user_space(const struct world *in, const struct start *from, struct walked *walked)
{
	struct walk walk;

	world = in;
	begin_walk(&walk, from);
	walked->python_steps = walk_python(&walk, from->thread_id);
	walked->native_steps = walk_native(&walk);
	walk.record.hash |= 1;
	walked->words = walk.words;
	walked->record = walk.record;
	world = 0;
}
