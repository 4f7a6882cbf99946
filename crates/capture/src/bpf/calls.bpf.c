/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Times calls into any library. A probe's cookie is the row of the function in the call table; the row says which
 * arguments to read. The scheduler's hooks (sched.bpf.c) keep each thread's clocks; a call's split is the difference
 * between the clocks at its return and at its entry.
 */
#include "stacks.bpf.h"
#include "communicators.bpf.h"
#include "waited.bpf.h"

const volatile struct wire_types wire_types SEC(".rodata.wire") __attribute__((used));

/* Raised by user space whenever the set of targets changes. */
__u32 generation = 1;
/* Set by user space to end a trace whose probes take long to remove. */
bool paused = false;
/* Raised by user space at the end of each bucket of time. */
__u64 epoch = 1;
/* Written by user space: the state of each function's links, and whether a burst is open. */
struct row_state row_states[MAX_APIS];
bool burst_is_open;
/* The one thread of the tracer's own that may be traced, to learn what that costs. */
__s32 calibrating_tid;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_APIS);
	__type(key, __u32);
	__type(value, struct api_spec);
} api_specs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_APIS);
	__type(key, __u32);
	__type(value, struct own_operands);
} own_operands SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct call_count);
} call_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 8192);
	__uint(key_size, 0);
	__uint(value_size, sizeof(__u32));
} free_slots SEC(".maps");

struct own_link_key {
	__u32 pid;
	__u32 row;
};

/* Functions that a process has a link of its own for, while everybody else's are seen in bursts. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct own_link_key);
	__type(value, __u8);
} own_links SEC(".maps");

/* The last calls that got no record: user space reads them when something has gone wrong. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RECORDER_SHARDS *RECORDER_SLOTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct detailed_call);
} recorder SEC(".maps");

/* How many calls each shard has recorded, each on a cache line of its own. */
struct {
	__u64 calls;
	__u64 unused[7];
} recorded[RECORDER_SHARDS];

struct context_key {
	__u64 handle;
	__u64 pid;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct context_key);
	__type(value, __s32);
} context_devices SEC(".maps");

static __noinline int introduce_caller(struct task_struct *task)
{
	struct thread_record *record;
	__u32 pid = task->tgid;
	__u8 known = 1;

	bpf_map_update_elem(&known_processes, &pid, &known, BPF_ANY);
	record = introduction(task_id(task), &task->comm, bpf_get_current_cgroup_id());
	if (record)
		ring_submit_urgent(record);
	return 0;
}

static __noinline struct thread_state *new_thread(struct task_struct *task)
{
	__u32 pid = task->tgid;
	struct thread_state *thread;

	if (!is_wanted(pid) && task->pid != calibrating_tid)
		return 0;
	thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread) {
		lose(LOSS_NO_THREAD_STATE, 1);
		return 0;
	}
	thread->clocks.since_ns = bpf_ktime_get_ns();
	thread->generation = generation;
	thread->wanted = true;
	thread->device = -1;
	introduce_caller(task);
	return thread;
}

static __always_inline struct thread_state *wanted_thread(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = bpf_task_storage_get(&threads, task, 0, 0);

	if (!thread)
		return new_thread(task);
	if (thread->generation != generation) {
		thread->generation = generation;
		thread->wanted = is_wanted(task->tgid) || task->pid == calibrating_tid;
		/* It was watched for the sake of others so far. */
		if (thread->wanted && thread->hops) {
			thread->hops = 0;
			introduce_caller(task);
		}
	}
	return thread->wanted ? thread : 0;
}

static __always_inline __u64 argument(struct pt_regs *ctx, __u32 slot)
{
	__u64 value = 0;

	switch (slot) {
	case 0:
		return REGISTER_ARGUMENT(ctx, 112);
	case 1:
		return REGISTER_ARGUMENT(ctx, 104);
	case 2:
		return REGISTER_ARGUMENT(ctx, 96);
	case 3:
		return REGISTER_ARGUMENT(ctx, 88);
	case 4:
		return REGISTER_ARGUMENT(ctx, 72);
	case 5:
		return REGISTER_ARGUMENT(ctx, 64);
	}
	/* The stack holds the return address, then the seventh argument. */
	bpf_probe_read_user(&value, sizeof(value), (void *)(PT_REGS_SP(ctx) + 8 * (slot - 5)));
	return value;
}

/* An operand's value at entry; for one that the function will store, the address it stores to. */
static __noinline __u64 operand_at_entry(struct pt_regs *ctx, const struct operand *operand)
{
	__u64 value = 0;

	if (!operand || operand->kind == OPERAND_NONE)
		return 0;
	if (operand->kind == OPERAND_CONST)
		return operand->constant;
	if (operand->kind == OPERAND_HASH)
		return hash_at(PT_REGS_SP(ctx) + 8 * (operand->slot - 5));
	value = argument(ctx, operand->slot);
	if (operand->kind == OPERAND_ARG32)
		return (__u32)value;
	if (operand->kind == OPERAND_SIZE_OF)
		return (__u32)value < 16 ? 1 << (operand->constant >> 2 * (__u32)value & 3) : 0;
	if (operand->kind == OPERAND_HASH_AT)
		return hash_at(value);
	if (operand->kind == OPERAND_FIELD || operand->kind == OPERAND_FIELD32) {
		void *field = (void *)(value + operand->offset);
		__u32 size = operand->kind == OPERAND_FIELD ? 8 : 4;

		value = 0;
		bpf_probe_read_user(&value, size, field);
	}
	return value;
}

/* What the function stored, for an operand that says so; otherwise what was there at entry. */
static __always_inline __u64 operand_at_return(const struct operand *operand, __u64 at_entry)
{
	__u64 value = 0;

	if (operand->kind == OPERAND_OUT)
		bpf_probe_read_user(&value, 8, (void *)at_entry);
	else if (operand->kind == OPERAND_OUT32)
		bpf_probe_read_user(&value, 4, (void *)(at_entry + operand->offset));
	else
		value = at_entry;
	return value;
}

static __always_inline void read_arguments(struct pt_regs *ctx, const struct api_spec *spec, struct open_call *call)
{
	if (spec->stream.kind)
		call->stream = operand_at_entry(ctx, &spec->stream);
	if (spec->handle.kind)
		call->handle = operand_at_entry(ctx, &spec->handle);
	if (!spec->reads_more)
		return;
	call->address = operand_at_entry(ctx, &spec->address);
	call->direction = operand_at_entry(ctx, &spec->direction);
	call->device = operand_at_entry(ctx, &spec->device);
	call->bytes = operand_at_entry(ctx, &spec->bytes[0]);
	for (int i = 1; i < MAX_FACTORS; i++)
		if (spec->bytes[i].kind)
			call->bytes *= operand_at_entry(ctx, &spec->bytes[i]);
}

/* What only calls of this library have. Never inlined: most functions have nothing of the kind. */
static __noinline int read_own(struct pt_regs *ctx, struct thread_state *thread, __u32 api, __u32 depth)
{
	struct own_operands *own = bpf_map_lookup_elem(&own_operands, &api);
	struct api_spec *spec = bpf_map_lookup_elem(&api_specs, &api);

	if (!own || !spec || !thread)
		return 0;
	if (spec->communicating)
		recall_communicator(thread, spec->communicating, operand_at_entry(ctx, &spec->communicator));
	for (int i = 0; i < MAX_OWN; i++) {
		const struct operand *operand = &own->operands[i];

		thread->own[MASKED(depth, MAX_DEPTH)][i] = operand->kind == OPERAND_KNOWN
							       ? thread->known[MASKED(operand->constant, KNOWN_FACTS)]
							       : operand_at_entry(ctx, operand);
	}
	return 0;
}

/* An operation that is made of others calls them: ncclBcast, for one. They are parts of it. */
static __noinline bool is_part_of_another(struct thread_state *thread, __u32 depth)
{
	struct api_spec *outer;
	__u32 api;

	if (!thread || !depth)
		return false;
	api = open_call(thread, depth - 1)->api;
	outer = bpf_map_lookup_elem(&api_specs, &api);
	return outer && outer->communicating;
}

static __noinline bool has_own_link(__u32 row)
{
	struct own_link_key key = {.pid = bpf_get_current_pid_tgid() >> 32, .row = row};

	return bpf_map_lookup_elem(&own_links, &key);
}

/*
 * Whether this link is the one to see the call. A function can have several links on it while user space goes over from
 * one to another. Which of them is due follows from the function's mode, so that user space can attach and remove links
 * around the moment of change, and no call is missed or seen twice.
 */
static __always_inline bool is_due(__u64 cookie, const struct row_state *state)
{
	if (cookie & COOKIE_OWN_LINK)
		return state->mode != ROW_ALWAYS;
	if (cookie & COOKIE_BURST)
		return state->mode != ROW_ALWAYS && burst_is_open && !has_own_link(cookie & COOKIE_ROW);
	return state->mode == ROW_ALWAYS && cookie >> COOKIE_GENERATION_SHIFT == state->generation;
}

static __always_inline struct row_state *row_state(__u32 row)
{
	return &row_states[MASKED(row, MAX_APIS)];
}

/* Work that follows a wait ends a time in which the device had none. It is kept however short it is. */
static __always_inline bool ends_idle(const struct thread_state *thread, const struct api_spec *spec)
{
	return spec->submits && thread->after_wait;
}

/*
 * Some kernels do not tell of what certain tasks do: a thread calls, or returns from a call, that was not seen to come
 * back from a wait, and maybe not to be woken. How long it waited for a CPU after that is known when it leaves.
 */
static __noinline int settle(struct thread_state *thread)
{
	if (!thread || thread->place != PLACE_BLOCKED)
		return 0;
	thread->place = PLACE_SETTLED;
	thread->wake_ns = woken_ns(thread, bpf_ktime_get_ns());
	waited(thread, thread->wake_ns - thread->off_ns, 0);
	return 0;
}

static __always_inline int enter(struct pt_regs *ctx, __u64 cookie)
{
	__u32 api = cookie & COOKIE_ROW;
	struct thread_state *thread = wanted_thread();
	struct api_spec *spec = bpf_map_lookup_elem(&api_specs, &api);
	__u64 sp = PT_REGS_SP(ctx), ip = PT_REGS_IP(ctx);
	struct row_state *state = row_state(api);
	struct open_call *call;
	__u32 depth;

	if (!thread || !spec || paused)
		return 1;
	if (thread->place != PLACE_RUNNING)
		settle(thread);
	if (!is_due(cookie, state)) {
		thread->clocks.skipped_hits++;
		return 1;
	}
	depth = thread->depth;
	for (int i = 0; i < MAX_DEPTH && depth > 0; i++) {
		struct open_call *outer = open_call(thread, depth - 1);

		if (outer->removals != row_state(outer->api)->removals) {
			lose(LOSS_CUT_OFF, 1);
			depth--;
			continue;
		}
		if (outer->sp > sp)
			break;
		if (outer->sp == sp && outer->api != api)
			break; /* a tail call into another traced function */
		if (outer->sp == sp && outer->ip != ip)
			return 1; /* a tail call into an alias of the same function */
		lose(LOSS_ABANDONED, 1);
		depth--;
	}
	if (depth >= MAX_DEPTH) {
		lose(LOSS_TOO_DEEP, 1);
		return 1;
	}
	if (spec->communicating) {
		if (is_part_of_another(thread, depth))
			return 1;
		note_group(thread, spec->communicating);
	}
	call = open_call(thread, depth);
	call->ip = ip;
	call->sp = sp;
	call->longest_blocked_ns = 0;
	call->longest_runqueue_ns = 0;
	call->api = api;
	call->bytes = 0;
	call->removals = state->removals;
	call->counted_only =
	    spec->keep_min_ns == KEEP_NONE ||
	    (state->mode == ROW_COUNTED_IN_BURSTS && !(cookie & COOKIE_OWN_LINK) && !ends_idle(thread, spec));
	/* What is only counted needs no arguments but those that are counted. */
	if (!call->counted_only || spec->reads_more)
		read_arguments(ctx, spec, call);
	if (spec->own_count && (!call->counted_only || spec->communicating))
		read_own(ctx, thread, api, depth);
	thread->depth = depth + 1;
	/* The clocks are read after the time here and before it at the return, so that a preemption between the two
	   (kernels with preempt=full) cannot make the waits longer than the call. */
	call->start_ns = bpf_ktime_get_ns();
	call->runqueue_ns = thread->clocks.runqueue_ns;
	call->blocked_ns = thread->blocked_ns;
	return 0;
}

static __always_inline __u32 histogram_index(__u64 ns)
{
	__u32 octave = 3, index;
	__u64 rest = ns >> 3;

	if (ns < 128)
		return 0;
	/* Halving steps: durations of one function are alike, so that the branches are predicted. */
	for (int step = 32; step > 0; step /= 2) {
		if (rest >> step) {
			rest >>= step;
			octave += step;
		}
	}
	index = (octave - 7) * 8 + ((ns >> (octave - 3)) & 7) + 1;
	return index < HISTOGRAM ? index : HISTOGRAM - 1;
}

static __noinline __u32 new_slot(struct thread_state *thread, __u32 api, __u64 keep_min_ns)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct call_count *counter;
	__u64 id = bpf_get_current_pid_tgid();
	__u32 slot = 0;

	if (!thread || bpf_map_pop_elem(&free_slots, &slot))
		return 0;
	counter = bpf_map_lookup_elem(&call_counts, &slot);
	if (!counter)
		return 0;
	counter->pid = id >> 32;
	counter->tid = id;
	counter->api = api + 1;
	counter->image = thread->image;
	counter->keep_min_ns = keep_min_ns;
	counter->stack_at_ns = 0;
	counter->thread_started_ns = task->start_time;
	thread->slots[MASKED(api, MAX_APIS)] = slot;
	return slot;
}

/* Counts a finished call. One that cannot be counted is a loss and gets no record either. */
static __always_inline struct call_count *count(struct thread_state *thread, const struct api_spec *spec,
						const struct open_call *call, __u32 api, __u64 ns, __u64 runqueue_ns,
						__u64 blocked_ns, bool failed)
{
	__u32 slot = thread->slots[MASKED(api, MAX_APIS)];
	struct call_count *counter;
	struct extremes *extremes;
	__u64 now_epoch = epoch;

	if (!slot)
		slot = new_slot(thread, api, spec->keep_min_ns);
	counter = slot ? bpf_map_lookup_elem(&call_counts, &slot) : 0;
	if (!counter) {
		lose(LOSS_UNCOUNTED, 1);
		return 0;
	}
	counter->count++;
	counter->sum_ns += ns;
	counter->buckets[histogram_index(ns) & (HISTOGRAM - 1)]++;
	if (runqueue_ns)
		counter->runqueue_ns += runqueue_ns;
	if (blocked_ns)
		counter->blocked_ns += blocked_ns;
	if (call->bytes)
		counter->bytes += call->bytes;
	if (failed)
		counter->errors++;
	extremes = &counter->extremes[now_epoch & 1];
	if (extremes->epoch != now_epoch) {
		extremes->epoch = now_epoch;
		extremes->min_ns = ns;
		extremes->max_ns = ns;
	} else if (ns < extremes->min_ns) {
		extremes->min_ns = ns;
	} else if (ns > extremes->max_ns) {
		extremes->max_ns = ns;
	}
	return counter;
}

static __noinline int change_device(struct thread_state *thread, const struct api_spec *spec, struct open_call *call)
{
	struct context_key key = {};
	__s32 device, *bound;

	if (!thread || !spec || !call)
		return 0;
	key.pid = bpf_get_current_pid_tgid() >> 32;
	key.handle = operand_at_return(&spec->handle, call->handle);
	device = operand_at_return(&spec->device, call->device);
	bound = bpf_map_lookup_elem(&context_devices, &key);

	switch (spec->device_change) {
	case DEVICE_BIND_CONTEXT:
	case DEVICE_BIND_AND_SELECT:
		bpf_map_update_elem(&context_devices, &key, &device, BPF_ANY);
		if (spec->device_change == DEVICE_BIND_CONTEXT)
			return 0;
		break;
	case DEVICE_PUSH_CONTEXT:
		thread->pushed_devices[thread->pushed & 7] = thread->device;
		thread->pushed++;
		device = bound ? *bound : -1;
		break;
	case DEVICE_POP_CONTEXT:
		if (!thread->pushed) {
			device = -1;
			break;
		}
		thread->pushed--;
		device = thread->pushed_devices[thread->pushed & 7];
		break;
	case DEVICE_SELECT_CONTEXT:
		device = bound ? *bound : -1;
		break;
	}
	thread->device = device;
	return 0;
}

/* The open call that returns to this stack pointer. Those inside of it never returned. */
static __always_inline struct open_call *close_call(struct thread_state *thread, __u64 sp, __u32 api)
{
	__u32 depth = thread->depth;

	for (int i = 0; i < MAX_DEPTH && depth > 0; i++) {
		struct open_call *call = open_call(thread, --depth);

		if (call->sp + RETURN_SP_SHIFT == sp) {
			__u32 inner = thread->depth - depth - 1;

			if (inner)
				lose(LOSS_ABANDONED, inner);
			thread->depth = depth;
			return call;
		}
		if (call->sp > sp)
			break;
	}
	/* Without sessions, entries that were skipped come back here. */
	if (row_state(api)->mode == ROW_ALWAYS)
		lose(LOSS_UNMATCHED, 1);
	return 0;
}

static __always_inline void fill_call(struct call_record *record, enum record_kind kind, struct pt_regs *ctx,
				      struct task_struct *task, struct thread_state *thread,
				      const struct api_spec *spec, const struct open_call *call, __u64 now, __u64 stack)
{
	__u32 depth = thread->depth;

	fill_head(&record->head, kind, task->tgid, now);
	record->tid = task->pid;
	record->api = call->api;
	record->depth = depth;
	record->direction = call->direction;
	record->duration_ns = now - call->start_ns;
	record->parent_start_ns = depth ? open_call(thread, depth - 1)->start_ns : 0;
	record->caller = PT_REGS_IP(ctx);
	record->stream = call->stream;
	record->handle = operand_at_return(&spec->handle, call->handle);
	record->ret = PT_REGS_RC(ctx);
	record->device = thread->device;
	record->wait_reason = call->longest_blocked_ns ? call->wait_reason : WAIT_REASONS;
	record->reserved = 0;
	record->stack = stack;
}

static __always_inline void fill_details(struct call_details *details, const struct api_spec *spec,
					 const struct open_call *call, __u64 runqueue_ns, __u64 blocked_ns)
{
	details->runqueue_ns = runqueue_ns;
	details->blocked_ns = blocked_ns;
	details->bytes = call->bytes;
	details->address = operand_at_return(&spec->address, call->address);
	details->woken_by = call->longest_blocked_ns ? call->woken_by : (struct task_id){};
	details->preempted_by = call->longest_runqueue_ns ? call->preempted_by : (struct task_id){};
}

/* The call is closed: its depth is that of the thread. */
static __noinline int fill_own(struct call_with_own *record, struct thread_state *thread, __u32 api)
{
	struct own_operands *own = bpf_map_lookup_elem(&own_operands, &api);

	if (!own || !thread || !record)
		return 0;
	for (int i = 0; i < MAX_OWN; i++)
		record->own[i] = operand_at_return(&own->operands[i], thread->own[MASKED(thread->depth, MAX_DEPTH)][i]);
	return 0;
}

/* A place for a call that gets no record; the oldest one's. A reader knows by the kind whether it is complete. */
static __always_inline struct detailed_call *recorder_place(void)
{
	__u32 shard = bpf_get_smp_processor_id() & (RECORDER_SHARDS - 1);
	__u64 index = __sync_fetch_and_add(&recorded[shard].calls, 1);
	__u32 slot = shard * RECORDER_SLOTS + (index & (RECORDER_SLOTS - 1));

	return bpf_map_lookup_elem(&recorder, &slot);
}

/* A call that takes longer than this is worth a stack; so is one that takes many times as long as usual. */
#define SLOW_CALL_NS	   1000000
#define NOTICEABLE_CALL_NS 20000
#define SLOW_TIMES	   8
/* Of each function, this often at most when there is no better reason, and once in so long before others have more. */
#define SAMPLE_EVERY_NS	 100000000
#define SAMPLE_SURELY_NS 1000000000

static __always_inline bool is_slow(const struct call_count *counter, __u64 ns)
{
	return ns >= SLOW_CALL_NS || (ns >= NOTICEABLE_CALL_NS && ns * counter->count > SLOW_TIMES * counter->sum_ns);
}

/* The stack from which a finished call was made, if it is worth one. */
static __always_inline __u64 stack_of_call(struct pt_regs *ctx, struct thread_state *thread,
					   const struct api_spec *spec, struct call_count *counter, __u64 ns, __u64 now)
{
	struct registers from = {.ip = PT_REGS_IP(ctx), .sp = PT_REGS_SP(ctx), .bp = PT_REGS_FP(ctx)};
	bool allocates = spec->address.kind == OPERAND_OUT;
	__u64 since_ns = now - counter->stack_at_ns;
	bool is_known = since_ns < SAMPLE_EVERY_NS;
	__u64 reserved = since_ns < SAMPLE_SURELY_NS ? RESERVED_CREDIT_NS : RESERVED_CREDIT_NS / 4;

	/* A function that is slow all the time leaves some for those that had none lately. */
	if (is_slow(counter, ns) || allocates || takes_all_stacks()) {
		if (!can_spend(thread, MOMENT_CALL, now, is_known ? RESERVED_CREDIT_NS / 2 : 0))
			return 0;
	} else if (is_known || !can_spend(thread, MOMENT_CALL, now, reserved)) {
		return 0;
	}
	counter->stack_at_ns = now;
	return take_stack(ctx, thread, &from, MOMENT_CALL);
}

static __always_inline int leave(struct pt_regs *ctx, __u64 cookie)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = bpf_task_storage_get(&threads, task, 0, 0);
	__u64 now, ns, runqueue_ns, blocked_ns, stack;
	__s32 ret = PT_REGS_RC(ctx);
	struct call_count *counter;
	struct open_call *call;
	struct api_spec *spec;
	bool has_details, is_kept;
	__u32 api;

	if (!thread || !thread->wanted || paused)
		return 0;
	if (thread->place != PLACE_RUNNING)
		settle(thread);
	runqueue_ns = thread->clocks.runqueue_ns;
	blocked_ns = thread->blocked_ns;
	now = bpf_ktime_get_ns();
	call = close_call(thread, PT_REGS_SP(ctx), cookie & COOKIE_ROW);
	if (!call)
		return 0;
	api = call->api;
	spec = bpf_map_lookup_elem(&api_specs, &api);
	if (!spec)
		return 0;
	if (spec->learns) {
		if (!ret && thread->device < 0)
			change_device(thread, spec, call);
		return 0;
	}
	ns = now - call->start_ns;
	runqueue_ns -= call->runqueue_ns;
	blocked_ns -= call->blocked_ns;
	if (!thread->depth) {
		thread->clocks.in_calls_ns += ns;
		if (runqueue_ns)
			thread->clocks.in_calls_runqueue_ns += runqueue_ns;
		if (blocked_ns)
			thread->clocks.in_calls_blocked_ns += blocked_ns;
	}
	if (spec->device_change && !ret)
		change_device(thread, spec, call);
	if (spec->communicating)
		keep_communicator(thread, spec->communicating, operand_at_return(&spec->handle, call->handle));
	counter = count(thread, spec, call, api, ns, runqueue_ns, blocked_ns, ret);
	is_kept = ends_idle(thread, spec);
	if (spec->waits || spec->submits)
		thread->after_wait = spec->waits;
	if (!counter || call->counted_only || (counter->keep_min_ns == KEEP_NONE && !is_kept))
		return 0;

	has_details = runqueue_ns || blocked_ns || spec->reads_more;
	if (ns < counter->keep_min_ns && !is_kept) {
		struct detailed_call *record = recorder_place();

		if (!record)
			return 0;
		record->call.head.kind = 0;
		barrier();
		fill_call(&record->call, 0, ctx, task, thread, spec, call, now, 0);
		if (has_details)
			fill_details(&record->details, spec, call, runqueue_ns, blocked_ns);
		barrier();
		record->call.head.kind = has_details ? RECORD_DETAILED_CALL : RECORD_CALL;
		return 0;
	}
	stack = stack_of_call(ctx, thread, spec, counter, ns, now);
	if (spec->own_count) {
		struct call_with_own *record = ring_reserve(sizeof(*record), LOSS_RING_FULL);

		if (!record)
			return 0;
		fill_call(&record->call, RECORD_CALL_WITH_OWN, ctx, task, thread, spec, call, now, stack);
		fill_details(&record->details, spec, call, runqueue_ns, blocked_ns);
		fill_own(record, thread, api);
		ring_submit(record);
	} else if (has_details) {
		struct detailed_call *record = ring_reserve(sizeof(*record), LOSS_RING_FULL);

		if (!record)
			return 0;
		fill_call(&record->call, RECORD_DETAILED_CALL, ctx, task, thread, spec, call, now, stack);
		fill_details(&record->details, spec, call, runqueue_ns, blocked_ns);
		ring_submit(record);
	} else {
		struct call_record *record = ring_reserve(sizeof(*record), LOSS_RING_FULL);

		if (!record)
			return 0;
		fill_call(record, RECORD_CALL, ctx, task, thread, spec, call, now, stack);
		ring_submit(record);
	}
	return 0;
}

/* Since Linux 7.0 it takes the context. The one whose prototype is not the kernel's does not exist there. */
extern bool bpf_session_is_return(void) __ksym __weak;
extern bool bpf_session_is_return___with_context(void *ctx) __ksym __weak;

static __always_inline bool is_return(void *ctx)
{
	if (bpf_ksym_exists(bpf_session_is_return___with_context))
		return bpf_session_is_return___with_context(ctx);
	return bpf_session_is_return();
}

/* Kernel 6.13 and later: entry and return in one program; a call that is not wanted skips its return. */
SEC("?uprobe.session")
int call_session(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);

	return is_return(ctx) ? leave(ctx, cookie) : enter(ctx, cookie);
}

/* Kernel 6.6 and later: one link for all entries, one for all returns. */
SEC("?uprobe.multi")
int call_enter(struct pt_regs *ctx)
{
	enter(ctx, bpf_get_attach_cookie(ctx));
	return 0;
}

SEC("?uretprobe.multi")
int call_leave(struct pt_regs *ctx)
{
	return leave(ctx, bpf_get_attach_cookie(ctx));
}

/* Any kernel: a link for each entry and each return. */
SEC("?uprobe")
int call_enter_one(struct pt_regs *ctx)
{
	enter(ctx, bpf_get_attach_cookie(ctx));
	return 0;
}

SEC("?uretprobe")
int call_leave_one(struct pt_regs *ctx)
{
	return leave(ctx, bpf_get_attach_cookie(ctx));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
