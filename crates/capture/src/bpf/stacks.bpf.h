/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Takes a thread's stack at this very moment: the kernel's frames, Python's and native ones. A record names it by its
 * hash; the stack itself goes to the ring when user space does not know it. Each thread has a credit of time for that,
 * which fills up slowly, so that stacks cannot take more than their share whatever the thread does.
 */
#ifndef GPUWHY_STACKS_BPF_H
#define GPUWHY_STACKS_BPF_H

#include "shared.bpf.h"

static __always_inline bool read_memory(void *walk, void *into, __u32 bytes, __u64 address)
{
	return !bpf_probe_read_user(into, bytes, (void *)address);
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_MAPPINGS);
	__type(key, __u32);
	__type(value, struct code_mapping);
} code_mappings SEC(".maps");

struct shard_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct unwind_shard));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_SHARDS);
	__type(key, __u32);
	__array(values, struct shard_map);
} unwind_shards SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct walked_process);
} walked_processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LAYOUTS);
	__type(key, __u32);
	__type(value, struct python_layout);
} python_layouts SEC(".maps");

/* Stacks that user space has been told of. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u8);
} seen_stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk_counts);
} walk_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct stack_settings);
} stack_settings SEC(".maps");

static __always_inline const struct code_mapping *mapping_at(__u32 index)
{
	return bpf_map_lookup_elem(&code_mappings, &index);
}

static __always_inline const struct unwind_shard *shard_at(__u32 index)
{
	void *shard = bpf_map_lookup_elem(&unwind_shards, &index);
	__u32 zero = 0;

	return shard ? bpf_map_lookup_elem(shard, &zero) : 0;
}

/*
 * While a traced function is under way, the kernel keeps where it returns to, and has put an address of its own there.
 */
static __noinline __u64 hidden_return(void *walk, __u64 slot)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct return_instance *hidden = BPF_CORE_READ(task, utask, return_instances);

	/* Tail calls hide each other at the same place; the last of them has what was there first. */
	__u64 found = 0;

	for (int i = 0; i < 2 * MAX_DEPTH && hidden; i++) {
		__u64 stack = BPF_CORE_READ(hidden, stack);

		if (stack == slot)
			found = BPF_CORE_READ(hidden, orig_ret_vaddr);
		else if (stack > slot)
			break;
		hidden = BPF_CORE_READ(hidden, next);
	}
	return found;
}

struct walk;
static __always_inline __u32 recall_rule(struct walk *walk, __u64 address);
static __always_inline void remember_rule(struct walk *walk, __u64 address, __u32 rule);
#define RECALL_RULE   recall_rule
#define REMEMBER_RULE remember_rule
static __always_inline void note_code(struct walk *walk, const struct python_layout *layout, __u64 code,
				      __u32 fingerprint);
#define NOTE_CODE note_code
#include "unwind_python.h"

enum {
	RULES_REMEMBERED = 16384,
	CODES_REMEMBERED = 8192,
};

/*
 * What walks remember, each in the one place that its key leads to, for all CPUs. Writers may come upon each other: a
 * rule carries a part of its key, so that one that is mixed from two is not taken for either.
 */
struct walk_memory {
	struct {
		__u64 key;
		__u64 rule;
	} rules[RULES_REMEMBERED];
	/* Code objects of Python that user space has been told of. */
	__u64 codes[CODES_REMEMBERED];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk_memory);
} walk_memory SEC(".maps");

static __always_inline struct walk_memory *remembered(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&walk_memory, &zero);
}

static __always_inline __u64 mixed(__u64 key)
{
	key *= 0x9e3779b97f4a7c15ULL;
	return key ^ key >> 32;
}

/* Addresses of programs have 47 bits. */
static __always_inline __u64 rule_key(struct walk *walk, __u64 address)
{
	return address ^ (__u64)walk->version << 47;
}

static __always_inline __u32 recall_rule(struct walk *walk, __u64 address)
{
	struct walk_memory *memory = remembered();
	__u64 key = rule_key(walk, address), mix = mixed(key), rule;
	__u32 place = MASKED(mix, RULES_REMEMBERED);

	if (!memory || memory->rules[place].key != key)
		return 0;
	rule = memory->rules[place].rule;
	return rule >> 32 == mix >> 32 ? rule : 0;
}

static __always_inline void remember_rule(struct walk *walk, __u64 address, __u32 rule)
{
	struct walk_memory *memory = remembered();
	__u64 key = rule_key(walk, address), mix = mixed(key);
	__u32 place = MASKED(mix, RULES_REMEMBERED);

	if (!memory)
		return;
	memory->rules[place].key = key;
	memory->rules[place].rule = mix >> 32 << 32 | rule;
}

/* One for each CPU: walks that come upon each other may spoil it, which the fingerprint tells. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct code_record);
} code_copies SEC(".maps");

/*
 * Copies an object into an array; less of it when it lies at the end of what is readable, and nothing when it does not
 * fit. A macro, since the mask has to be a constant for the verifier of 6.1.
 */
#define COPY_PART(walk, into, address, bytes, least)                                                                   \
	({                                                                                                             \
		__u64 copied = (bytes), less = (least);                                                                \
		if (copied >= sizeof(into) || !read_memory(walk, into, MASKED(copied, sizeof(into)), address))         \
			copied = less;                                                                                 \
		if (copied == less &&                                                                                  \
		    (less >= sizeof(into) || !read_memory(walk, into, MASKED(less, sizeof(into)), address)))           \
			copied = 0;                                                                                    \
		copied;                                                                                                \
	})

/* How long a string or bytes are; more than can be copied where that cannot be read. */
static __always_inline __u64 object_length(struct walk *walk, __u64 address, __u32 offset)
{
	__u64 length = 0;

	if (!read_pointer(walk, &length, address + offset) || length > CODE_LINES_BYTES)
		return CODE_LINES_BYTES;
	return length;
}

/* Sends a code object as it is, when it is new: it may be gone before user space has looked at it. */
static __always_inline void note_code(struct walk *walk, const struct python_layout *layout, __u64 code,
				      __u32 fingerprint)
{
	__u64 key = mixed(code ^ (__u64)fingerprint << 32 ^ (__u64)walk->record.identity << 47);
	__u32 zero = 0, place = MASKED(key, CODES_REMEMBERED);
	struct walk_memory *memory = remembered();
	struct code_record *copy;
	__u64 length;
	void *ring;

	if (!memory || memory->codes[place] == key)
		return;
	copy = bpf_map_lookup_elem(&code_copies, &zero);
	ring = own_ring();
	if (!copy || !ring)
		return;
	/* The time of the stack: what is needed to read it comes before it. */
	fill_head(&copy->head, RECORD_CODE, walk->record.head.pid, walk->record.head.at_ns);
	copy->code = code;
	copy->identity = walk->record.identity;
	copy->fingerprint = fingerprint;
	copy->addresses[CODE_HEAD] = code;
	copy->addresses[CODE_FILENAME] = python_field(walk, layout->code_filename);
	copy->addresses[CODE_LINETABLE] = python_field(walk, layout->code_linetable);
	copy->bytes[CODE_HEAD] = COPY_PART(walk, copy->code_head, code, CODE_HEAD_BYTES - 1, layout->code_bytes);
	if (!read_pointer(walk, &copy->addresses[CODE_NAME], code + layout->code_qualname))
		return;
	length = object_length(walk, copy->addresses[CODE_FILENAME], layout->string_length);
	copy->bytes[CODE_FILENAME] = COPY_PART(walk, copy->filename, copy->addresses[CODE_FILENAME],
					       layout->string_head + 4 * length, layout->string_head + length);
	length = object_length(walk, copy->addresses[CODE_NAME], layout->string_length);
	copy->bytes[CODE_NAME] = COPY_PART(walk, copy->name, copy->addresses[CODE_NAME],
					   layout->string_head + 4 * length, layout->string_head + length);
	/* The fingerprint looks at the first 8 bytes, however short the table is. */
	length = object_length(walk, copy->addresses[CODE_LINETABLE], layout->bytes_length);
	length = layout->bytes_head + (length < 8 ? 8 : length);
	copy->bytes[CODE_LINETABLE] = COPY_PART(walk, copy->linetable, copy->addresses[CODE_LINETABLE], length, length);
	if (!bpf_ringbuf_output(ring, copy, sizeof(*copy), BPF_RB_NO_WAKEUP))
		memory->codes[place] = key;
}

/* One for each walk that is under way on a CPU: on kernels that preempt kernel code, one can come upon another. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WALK_LEVELS);
	__type(key, __u32);
	__type(value, struct walk);
} walks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} walks_under_way SEC(".maps");

/* A credit never grows beyond this: a thread that has been quiet may take some stacks in a row. */
#define MOST_CREDIT_NS 500000
/* What comes after the most important has to leave this much. */
#define RESERVED_CREDIT_NS (MOST_CREDIT_NS / 2)
/* What one stack takes, roughly: less credit is none. */
#define LEAST_CREDIT_NS 10000

/* Whether a thread may spend time on a stack and keep this much of its credit for such stacks. */
static __always_inline bool can_spend(struct thread_state *thread, enum stack_moment moment, __u64 now, __u64 reserved)
{
	__u32 zero = 0;
	struct stack_settings *settings = bpf_map_lookup_elem(&stack_settings, &zero);
	struct stack_credit *credit;
	__u64 ns, passed;

	if (!settings)
		return false;
	/* Somebody who is not watched is met by the clock's ticks only, which are few. */
	if (settings->take_all || !thread)
		return settings->take_all || settings->allowance;
	credit = &thread->credits[moment];
	passed = now - credit->at_ns;
	if (passed > 1000000000)
		passed = 1000000000;
	ns = credit->ns + (passed * settings->allowance >> 20);
	credit->ns = ns < MOST_CREDIT_NS ? ns : MOST_CREDIT_NS;
	credit->at_ns = now;
	return credit->ns >= LEAST_CREDIT_NS + reserved;
}

/* A thread that has no credit left may take the most important stacks this often. */
#define OVERDRAW_EVERY_NS 100000000

static __always_inline bool can_overdraw(__u64 *overdrawn_ns, __u64 now)
{
	__u32 zero = 0;
	struct stack_settings *settings = bpf_map_lookup_elem(&stack_settings, &zero);

	if (!settings || !settings->allowance || now - *overdrawn_ns < OVERDRAW_EVERY_NS)
		return false;
	*overdrawn_ns = now;
	return true;
}

/* Global, so that the verifier looks at it once and not at each step of the walk. */
__noinline int walk_frame(struct walk *walk)
{
	return walk ? leave_frame(walk) : 0;
}

/* One frame of Python, or one thread's state on the way to the first. */
__noinline int walk_python_step(struct walk *walk)
{
	const struct python_layout *layout;
	__u32 index;

	if (!walk)
		return 0;
	index = walk->python.layout;
	layout = bpf_map_lookup_elem(&python_layouts, &index);
	return layout ? python_step(walk, layout) : 0;
}

/* Python's frames of the current thread: those of newer interpreters first, since they were called by older ones. */
static __always_inline void walk_python(struct walk *walk, const struct walked_process *process,
					struct task_struct *task)
{
	struct python_walk *python = &walk->python;
	const struct python_layout *layout;
	__u32 index = process->python_layout - 1;

	layout = bpf_map_lookup_elem(&python_layouts, &index);
	if (!process->python_layout || !layout)
		return;
	walk->record.python_end = PYTHON_NO_THREAD;
	python->layout = index;
	python->code_type = process->python_code_type;
	python->thread_id = BPF_CORE_READ(task, thread.fsbase);
	python->thread = 0;
	python->frame = 0;
	python->interpreters = 0;
	if (!read_pointer(walk, &python->interpreter, process->python_runtime + layout->runtime_interpreters)) {
		walk->record.python_end = PYTHON_UNREADABLE;
		return;
	}
	for (int i = 0; i < MAX_PYTHON_STEPS; i++)
		if (!walk_python_step(walk))
			return;
	end_python(walk, PYTHON_TOO_DEEP);
}

static __always_inline void walk_native(struct walk *walk, const struct walked_process *process)
{
	walk->record.end = WALK_TOO_DEEP;
	walk->version = process->version;
	walk->first_mapping = process->first_mapping;
	walk->mappings = process->mappings;
	walk->mapping = process->first_mapping;
	for (int i = 0; i < MAX_NATIVE_FRAMES + 1; i++)
		if (!walk_frame(walk))
			break;
}

static __always_inline void walk_kernel(struct walk *walk, void *ctx)
{
	long bytes = bpf_get_stack(ctx, walk->record.words, MAX_KERNEL_FRAMES * sizeof(__u64), 0);

	if (bytes <= 0)
		return;
	walk->record.kernel_frames = bytes / sizeof(__u64);
	for (int i = 0; i < MAX_KERNEL_FRAMES && i < walk->record.kernel_frames; i++)
		put_word(walk, walk->record.words[i]);
}

static __always_inline void count_walk(const struct walk *walk, enum stack_moment moment, __u64 ns)
{
	__u32 zero = 0;
	struct walk_counts *counts = bpf_map_lookup_elem(&walk_counts, &zero);
	__u32 end = walk->record.end, python_end = walk->record.python_end;
	__u64 at;

	if (!counts || end >= WALK_ENDS || python_end >= PYTHON_ENDS)
		return;
	at = MASKED(moment, MOMENTS);
	counts->ends[at][end][python_end].count++;
	counts->ends[at][end][python_end].ns += ns;
}

/* Tells user space of a stack that it does not know. */
static __always_inline void publish(struct walk *walk)
{
	__u64 hash = walk->record.hash, bytes = offsetof(struct stack_record, words) + walk->words * sizeof(__u64);
	void *ring = own_ring();
	__u8 seen = 1;

	if (bpf_map_lookup_elem(&seen_stacks, &hash))
		return;
	if (bytes > sizeof(struct stack_record))
		return;
	if (!ring || bpf_ringbuf_output(ring, &walk->record, bytes, BPF_RB_NO_WAKEUP)) {
		lose(LOSS_STACK_RING_FULL, 1);
		return;
	}
	bpf_map_update_elem(&seen_stacks, &hash, &seen, BPF_ANY);
}

/* Where a walk begins. */
struct registers {
	__u64 ip;
	__u64 sp;
	__u64 bp;
};

static __always_inline void fill_walk(struct walk *walk, void *ctx, struct task_struct *task,
				      const struct registers *from, enum stack_moment moment)
{
	const struct walked_process *process;
	__u32 pid = task->tgid;

	fill_head(&walk->record.head, RECORD_STACK, pid, bpf_ktime_get_ns());
	walk->record.tid = task->pid;
	walk->record.kernel_frames = 0;
	walk->record.python_frames = 0;
	walk->record.native_frames = 0;
	walk->record.end = WALK_NO_PROCESS;
	walk->record.python_end = PYTHON_NONE;
	walk->record.identity = 0;
	walk->record.hash = (__u64)pid << 32;
	walk->words = 0;
	walk->ip = from->ip;
	walk->sp = from->sp;
	walk->bp = from->bp;
	walk->is_return = 0;
	walk->is_doubtful = 0;
	walk->was_doubtful = 0;
	process = bpf_map_lookup_elem(&walked_processes, &pid);
	if (!process)
		return;
	walk->record.identity = process->identity;
	walk->record.hash = (__u64)pid << 32 | process->identity;
	if (moment == MOMENT_WAIT)
		walk_kernel(walk, ctx);
	walk_python(walk, process, task);
	walk_native(walk, process);
}

/*
 * The current thread's stack, by its hash; 0 when it could not be taken. `payer`, if there is one, is charged for it.
 */
static __noinline __u64 take_stack(void *ctx, struct thread_state *payer, const struct registers *from,
				   enum stack_moment moment)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 zero = 0, *under_way = bpf_map_lookup_elem(&walks_under_way, &zero), level;
	__u64 start = bpf_ktime_get_ns(), ns;
	struct stack_credit *credit;
	struct walk *walk;

	if (!under_way || !from)
		return 0;
	level = *under_way;
	walk = bpf_map_lookup_elem(&walks, &level);
	if (!walk)
		return 0;
	*under_way = level + 1;
	fill_walk(walk, ctx, task, from, moment);
	walk->record.hash |= 1;
	publish(walk);
	ns = bpf_ktime_get_ns() - start;
	count_walk(walk, moment, ns);
	*under_way = level;
	if (!payer)
		return walk->record.hash;
	credit = &payer->credits[MASKED(moment, MOMENTS)];
	credit->ns = credit->ns > ns ? credit->ns - ns : 0;
	payer->clocks.stacks++;
	payer->clocks.stacks_ns += ns;
	/* A waker's stack may be paid for by whom it wakes. */
	if (moment != MOMENT_WAKER) {
		payer->last_stack = walk->record.hash;
		payer->last_stack_ns = start;
	}
	return walk->record.hash;
}

/* Whether the user wants all stacks, whatever that costs. */
static __always_inline bool takes_all_stacks(void)
{
	__u32 zero = 0;
	struct stack_settings *settings = bpf_map_lookup_elem(&stack_settings, &zero);

	return settings && settings->take_all;
}

#endif
