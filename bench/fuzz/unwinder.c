/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * A libFuzzer target for the kernel side's stack walker: the input becomes registers, mappings, rows, memory and
 * Python's layout. `./dev fuzz` builds and runs it.
 *
 * Two bytes of input make a word of memory: most are addresses of code or of this very memory, so that the fuzzer finds
 * chains soon. Whatever it finds, a walk has to end within its limits, and its record has to hold what it says.
 */
#include <stdio.h>

#include "../../crates/capture/src/bpf/unwind_user.c"

enum {
	MEMORY_WORDS = 1024,
	CODE_BYTES = 4096,
	MAPPINGS = 8,
	ROWS = 64,
	/* Mappings and rows that belong to somebody else lie before these. */
	OTHERS = 4,
};

#define MEMORY_AT    0x7fff00000000ULL
#define CODE_AT	     0x400000ULL
#define PYTHON_TYPE  0x500000ULL
#define WALKED_AS_ID 0x600000ULL

struct input {
	const __u8 *bytes;
	size_t left;
};

static struct unwind_shard *shard;
static __u64 memory[MEMORY_WORDS];
static __u64 memory_bytes;
static __u8 code[CODE_BYTES];

static __u64 take(struct input *input, size_t bytes)
{
	__u64 value = 0;

	if (bytes > input->left)
		bytes = input->left;
	memcpy(&value, input->bytes, bytes);
	input->bytes += bytes;
	input->left -= bytes;
	return value;
}

/* The upper four bits say what a word is. */
static __u64 take_word(struct input *input)
{
	__u16 raw = take(input, 2), low = raw & 0xfff;

	switch (raw >> 12) {
	case 0:
		return low;
	case 1 ... 5:
		return MEMORY_AT + low % MEMORY_WORDS * 8;
	case 6 ... 9:
		return CODE_AT + low;
	case 10:
		return MEMORY_AT + low;
	case 11:
		return PYTHON_TYPE;
	case 12:
		return WALKED_AS_ID;
	case 13:
		return ~(__u64)low;
	case 14:
		return (__u64)low << 52 | low;
	}
	return 0;
}

static bool read_input(void *context, __u64 address, void *into, __u32 bytes)
{
	(void)context;
	if (address >= MEMORY_AT && address - MEMORY_AT <= memory_bytes &&
	    bytes <= memory_bytes - (address - MEMORY_AT)) {
		memcpy(into, (__u8 *)memory + (address - MEMORY_AT), bytes);
		return true;
	}
	if (address >= CODE_AT && address - CODE_AT <= CODE_BYTES && bytes <= CODE_BYTES - (address - CODE_AT)) {
		memcpy(into, code + (address - CODE_AT), bytes);
		return true;
	}
	return false;
}

/* Every 16th place on the stack is a return probe's. */
static __u64 hidden_input(void *context, __u64 slot)
{
	const __u64 *hidden = context;

	return slot % 128 ? 0 : *hidden;
}

static void take_mapping(struct input *input, struct code_mapping *mapping)
{
	__u8 kind = take(input, 1);

	mapping->start = CODE_AT + take(input, 2) % CODE_BYTES;
	mapping->end = mapping->start + take(input, 2) % (2 * CODE_BYTES);
	mapping->bias = kind & 1 ? take(input, 8) : CODE_AT;
	mapping->shard = kind & 2 ? take(input, 4) : 0;
	mapping->first_row = kind & 4 ? take(input, 4) : OTHERS;
	mapping->rows = kind & 8 ? take(input, 4) : ROWS;
	mapping->rows = kind & 16 ? 0 : mapping->rows;
	mapping->flags = kind >> 5;
}

/* Layouts of the versions that tell theirs themselves come from the traced process: any numbers. */
static void take_layout(struct input *input, struct python_layout *layout)
{
	/* 3.12, 3.11 and 3.9. */
	static const struct python_layout known[] = {
	    {
		.runtime_interpreters = 40,
		.interpreter_threads = 72,
		.thread_next = 8,
		.thread_id = 136,
		.thread_frame = 56,
		.frame_previous = 8,
		.frame_instruction = 56,
		.frame_entry = 70,
		.frame_bytes = 71,
		.thread_bytes = 144,
		.code_bytes = 144,
		.object_type = 8,
		.code_filename = 112,
		.code_name = 120,
		.code_linetable = 136,
		.code_firstlineno = 68,
		.code_instructions = 192,
		.flags = PYTHON_CFRAME | PYTHON_HAS_OWNER,
	    },
	    {
		.runtime_interpreters = 40,
		.interpreter_threads = 16,
		.thread_next = 8,
		.thread_id = 152,
		.thread_frame = 56,
		.cframe_frame = 8,
		.frame_code = 32,
		.frame_previous = 48,
		.frame_instruction = 56,
		.frame_entry = 68,
		.frame_bytes = 69,
		.thread_bytes = 160,
		.code_bytes = 144,
		.object_type = 8,
		.code_filename = 112,
		.code_name = 120,
		.code_linetable = 136,
		.code_firstlineno = 72,
		.code_instructions = 184,
		.flags = PYTHON_CFRAME | PYTHON_HAS_IS_ENTRY,
	    },
	    {
		.runtime_interpreters = 32,
		.interpreter_threads = 8,
		.thread_next = 8,
		.thread_id = 176,
		.thread_frame = 24,
		.frame_code = 32,
		.frame_previous = 24,
		.frame_instruction = 104,
		.frame_bytes = 112,
		.thread_bytes = 184,
		.code_bytes = 128,
		.object_type = 8,
		.code_filename = 104,
		.code_name = 112,
		.code_linetable = 120,
		.code_firstlineno = 40,
		.flags = PYTHON_INSTRUCTION_NUMBER | PYTHON_EACH_IS_ENTRY,
	    },
	};
	__u8 kind = take(input, 1) & 3;

	if (kind < 3) {
		*layout = known[kind];
		return;
	}
	for (size_t i = 0; i < sizeof(*layout) / 2; i++)
		((__u16 *)layout)[i] = take(input, 2);
}

static void take_tables(struct input *input)
{
	if (!shard)
		shard = calloc(1, sizeof(*shard));
	for (int i = 0; i < ROWS; i++) {
		struct unwind_row *row = &shard->rows[OTHERS + i];
		__u8 kind = take(input, 1);

		row->address = i * (CODE_BYTES / ROWS);
		if (kind & 0x80)
			row->address = take(input, 4);
		row->rule = kind & 0x40 ? take(input, 4) : (kind & 7) | (kind & 0x30) | 1 << 16;
	}
}

/* What there is may be repeated over all of memory: that makes deep stacks. */
static void take_memory(struct input *input)
{
	__u8 repeats = take(input, 1) & 1;

	for (int i = 0; i < CODE_BYTES; i += 64)
		memset(code + i, take(input, 1), 64);
	memory_bytes = 0;
	while (input->left && memory_bytes < sizeof(memory)) {
		memory[memory_bytes / 8] = take_word(input);
		memory_bytes += 8;
	}
	for (size_t i = memory_bytes / 8; repeats && i && i < MEMORY_WORDS; i++)
		memory[i] = memory[i - memory_bytes / 8];
	if (repeats && memory_bytes)
		memory_bytes = sizeof(memory);
}

static void demand(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "not so: %s\n", what);
	abort();
}

static void check(const struct walked *walked)
{
	const struct stack_record *record = &walked->record;

	demand(walked->native_steps <= MAX_NATIVE_FRAMES + 1, "native steps are bounded");
	demand(walked->python_steps <= MAX_PYTHON_STEPS, "steps over Python's objects are bounded");
	demand(record->native_frames <= MAX_NATIVE_FRAMES, "native frames are bounded");
	demand(record->python_frames <= MAX_PYTHON_FRAMES, "Python's frames are bounded");
	demand(walked->words <= STACK_WORDS, "words fit into the record");
	demand(walked->words == 2u * record->python_frames + record->native_frames, "every frame has its words");
	demand(record->end < WALK_NO_PROCESS, "the walk ended in a way that it can");
	demand(record->python_end > PYTHON_NONE && record->python_end < PYTHON_ENDS, "so did Python's");
}

int LLVMFuzzerTestOneInput(const __u8 *bytes, size_t size);

int LLVMFuzzerTestOneInput(const __u8 *bytes, size_t size)
{
	struct input input = {bytes, size};
	struct code_mapping mappings[OTHERS + MAPPINGS] = {};
	struct python_layout layout;
	struct walked_process process = {.first_mapping = OTHERS, .mappings = take(&input, 1) % (MAPPINGS + 1)};
	struct start start = {.thread_id = WALKED_AS_ID};
	__u64 hidden = take_word(&input);
	const struct unwind_shard *shards[1];
	struct walked walked;

	start.ip = take_word(&input);
	start.sp = take_word(&input);
	start.bp = take_word(&input);
	process.python_runtime = take_word(&input);
	process.python_code_type = PYTHON_TYPE;
	for (__u32 i = 0; i < process.mappings; i++)
		take_mapping(&input, &mappings[OTHERS + i]);
	take_layout(&input, &layout);
	take_tables(&input);
	take_memory(&input);
	shards[0] = shard;
	walk_in_user_space(
	    &(struct world){
		.context = &hidden,
		.read = read_input,
		.hidden_return = hidden_input,
		.mappings = mappings,
		.shards = shards,
		.process = &process,
		.layout = &layout,
		.mapping_count = OTHERS + MAPPINGS,
		.shard_count = 1,
	    },
	    &start, &walked);
	check(&walked);
	return 0;
}
