/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* The maps that several objects use (user space hands each the same ones), and how to write to them. */
#ifndef GPUWHY_SHARED_BPF_H
#define GPUWHY_SHARED_BPF_H

#include "kernel.bpf.h"
#include "wire.h"

enum thread_place {
	PLACE_RUNNING,
	PLACE_RUNQUEUE,
	PLACE_BLOCKED,
	/* Back from where it was blocked, which was not seen: what is yet to be done is to report it. */
	PLACE_SETTLED,
};

/* A call a thread is inside of. */
struct open_call {
	__u64 start_ns;
	__u64 ip;
	__u64 sp;
	/* The thread's clocks at entry. */
	__u64 runqueue_ns;
	__u64 blocked_ns;
	__u64 stream;
	__u64 handle;
	__u64 bytes;
	__u64 address;
	__u64 device;
	/* The stretch that held it up most, of each kind. */
	__u64 longest_blocked_ns;
	__u64 longest_runqueue_ns;
	struct task_id woken_by;
	struct task_id preempted_by;
	__u16 api;
	__u8 direction;
	__u8 wait_reason;
	/* Of the function at entry, see struct row_state. */
	__u16 removals;
	bool counted_only;
};

/* Kernel work of one kind that a thread does, or has done since its last record. */
struct work_state {
	__u64 start_ns;
	__u64 unreported_ns;
	__u32 unreported;
	__u32 code;
};

enum { WAIT_SITES = 16 };

/* A place in a program where a thread waits, and for how long it usually does. */
struct wait_site {
	__u32 key;
	__u32 usual_us;
	__u32 seen_ms;
	/* When a stack was taken there. */
	__u32 stack_ms;
};

/* All there is to know about a thread that makes traced calls, or that such a thread waits for. */
struct thread_state {
	struct thread_clocks clocks;
	__u64 blocked_ns;
	/* When it left the CPU, and when somebody made it runnable again. */
	__u64 off_ns;
	__u64 wake_ns;
	struct task_id woken_by;
	struct task_id preempted_by;
	__u32 generation;
	__u32 image;
	__u8 place;
	__u8 wait_reason;
	__u8 wanted;
	__u8 depth;
	__s16 device;
	__u16 pushed;
	__s16 pushed_devices[8];
	/* How many wake-ups away from a thread that makes calls; 0 for one that does. */
	__u8 hops;
	bool is_throttled;
	/* Whether it is among those that wait for a CPU. */
	bool is_queued;
	/* It has told its last clocks; its task may stay for as long as its parent likes. */
	bool has_exited;
	/* Whether it was a timer that ended its last wait for a futex that got a record: who holds it is yet to be
	 * seen. */
	bool owes_waker;
	/* Whether it has waited for the device since it last gave it work. */
	bool after_wait;
	/* The CPU it waited for, plus one, when another one took it in the end. */
	__u16 queue_cpu;
	__u32 poll_fd;
	/* Time off the CPU that no record stands for yet. */
	__u64 unreported_blocked_ns[WAIT_REASONS];
	__u64 unreported_runqueue_ns;
	__u64 unreported;
	/* What it may still spend on stacks of each kind, and when that was worked out. */
	struct stack_credit {
		__u64 ns;
		__u64 at_ns;
	} credits[MOMENTS];
	/* Stacks of the wait that it is in, or was in last. */
	__u64 wait_stack;
	__u64 waker_stack;
	/* The last stack of its own, and when it was taken. */
	__u64 last_stack;
	__u64 last_stack_ns;
	/* When it last took a stack without the credit for it, at a place it knew and at one it did not. */
	__u64 overdrawn_ns[2];
	struct wait_site sites[WAIT_SITES];
	__u32 site;
	/* How long it has waited lately, at most, and when. */
	__u32 longest_us;
	__u32 longest_ms;
	struct work_state work[WORK_KINDS + 1];
	struct finished_io io;
	/* Counter slot by row, 0 for none yet. */
	__u16 slots[MAX_APIS];
	struct open_call open[MAX_DEPTH];
	/* Of each open call, what own_operands were at entry. */
	__u64 own[MAX_DEPTH][MAX_OWN];
	/* Of the last call that was about a communicator, by enum known. */
	__u64 known[KNOWN_FACTS];
	/* Which of its groups of operations it is in, and how many are open inside each other. */
	__u64 group;
	__u64 group_depth;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_state);
} threads SEC(".maps");

/* Processes to trace when the user named some; empty otherwise. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u8);
} targets SEC(".maps");

/* Processes that made a traced call. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u8);
} known_processes SEC(".maps");

/* The request that each CPU completed last. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct finished_io);
} completions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSS_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} losses SEC(".maps");

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

/* One ring per group of CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_RINGS);
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

/* Set before loading. */
const volatile __u32 tracer_pid;
const volatile __u32 ring_mask;
const volatile bool filter_targets;
const volatile bool filter_user;
const volatile __u32 target_user;

static __always_inline struct open_call *open_call(struct thread_state *thread, __u64 index)
{
	return &thread->open[MASKED(index, MAX_DEPTH)];
}

static __always_inline struct task_id task_id(struct task_struct *task)
{
	struct task_id id = {.pid = task->tgid, .tid = task->pid};

	return id;
}

static __always_inline void lose(enum loss_reason reason, __u64 count)
{
	__u32 key = reason;
	__u64 *lost = bpf_map_lookup_elem(&losses, &key);

	if (lost)
		*lost += count;
}

/* Whether the current process is one the user asked about. */
static __always_inline bool is_wanted(__u32 pid)
{
	if (pid == tracer_pid)
		return false;
	if (filter_user && (__u32)bpf_get_current_uid_gid() != target_user)
		return false;
	return !filter_targets || bpf_map_lookup_elem(&targets, &pid);
}

/* The ring of this CPU's group. */
static __always_inline void *own_ring(void)
{
	__u32 shard = bpf_get_smp_processor_id() & ring_mask;

	return bpf_map_lookup_elem(&rings, &shard);
}

static __always_inline void *ring_reserve(__u64 size, enum loss_reason reason)
{
	void *ring = own_ring();
	void *record = ring ? bpf_ringbuf_reserve(ring, size, 0) : 0;

	if (!record)
		lose(reason, 1);
	return record;
}

/* Does not wake the reader: it comes by itself. */
static __always_inline void ring_submit(void *record)
{
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* Wakes the reader, for what is rare and cannot wait: a process may be gone before anybody has looked at it. */
static __always_inline void ring_submit_urgent(void *record)
{
	bpf_ringbuf_submit(record, BPF_RB_FORCE_WAKEUP);
}

static __always_inline void fill_head(struct record_head *head, enum record_kind kind, __u32 pid, __u64 at_ns)
{
	head->kind = kind;
	head->pid = pid;
	head->at_ns = at_ns;
}

/* Time that adds up before it gets a record: short stretches share one. */
#define RECORD_QUANTUM_NS 1000000

static __always_inline __u16 innermost_api(struct thread_state *thread)
{
	return thread->depth ? open_call(thread, thread->depth - 1)->api + 1 : 0;
}

/* Who a thread is. `cgroup_id` is known for the current thread only. */
static __always_inline struct thread_record *introduction(struct task_id task, const void *comm, __u64 cgroup_id)
{
	struct thread_record *record = ring_reserve(sizeof(*record), LOSS_LIFE_RING_FULL);

	if (!record)
		return 0;
	fill_head(&record->head, RECORD_THREAD, task.pid, bpf_ktime_get_ns());
	record->tid = task.tid;
	record->reserved = 0;
	record->cgroup_id = cgroup_id;
	bpf_probe_read_kernel(record->comm, sizeof(record->comm), comm);
	return record;
}

#endif
