/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Keeps the clocks of threads that make traced calls: how long each was runnable without a CPU, how long blocked and
 * in what, who took its CPU and who woke it. Other threads cost a look-up that finds nothing.
 */
#include "shared.bpf.h"

/* Threads user space has been told about because they woke or preempted a watched one: when they started. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, __u64);
} introduced SEC(".maps");

enum { STACK_FRAMES = 48 };

struct kernel_stack {
	__u64 frames[STACK_FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kernel_stack);
} kernel_stacks SEC(".maps");

/*
 * Whether a task is in a system call of its own and on its own kernel stack: interrupts of kernel code run on another
 * one, and those of user code find no system call. The lower half of addresses is enough to compare, and all that the
 * verifier lets a program have of a context pointer.
 */
static __always_inline bool in_own_call(void *ctx, struct task_struct *current)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(current);
	__u32 offset = (__u32)(__u64)ctx - (__u32)(__u64)current->stack;

	return offset < KERNEL_STACK_BYTES && (long)BPF_CORE_READ(regs, orig_ax) >= 0;
}

/*
 * Whether an interrupt runs on top of `current`, which then had no part in what happens. The preempt count would say
 * so too, but its address is not known on kernels without KALLSYMS_ALL, and it cannot tell a network interrupt from
 * the sender's own delivery over loopback.
 */
static __always_inline bool in_interrupt(void *ctx, struct task_struct *current)
{
	__u64 start = (__u64)&__irqentry_text_start, end = (__u64)&__irqentry_text_end;
	struct kernel_stack *stack;
	__u32 zero = 0;
	long size;

	if (current->pid == 0)
		return true; /* the idle task wakes nobody by itself */
	if (in_own_call(ctx, current))
		return false; /* walking the stack would cost a microsecond */
	stack = bpf_map_lookup_elem(&kernel_stacks, &zero);
	if (!stack)
		return false;
	size = bpf_get_stack(ctx, stack->frames, sizeof(stack->frames), 0);
	for (int i = 0; i < STACK_FRAMES && i * 8 < size; i++)
		if (stack->frames[i] >= start && stack->frames[i] < end)
			return true;
	return false;
}

static __always_inline struct task_id task_id(struct task_struct *task)
{
	struct task_id id = {.pid = task->tgid, .tid = task->pid};

	return id;
}

static __always_inline void introduce_once(struct task_struct *task)
{
	__u32 tid = task->pid;
	__u64 started = task->start_time;
	__u64 *seen = bpf_map_lookup_elem(&introduced, &tid);
	struct thread_record *record;

	if (tid == 0 || (seen && *seen == started))
		return;
	bpf_map_update_elem(&introduced, &tid, &started, BPF_ANY);
	record = introduction(task, 0);
	if (record)
		ring_submit(record);
}

static __always_inline enum wait_reason reason_of(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	long call = BPF_CORE_READ(regs, orig_ax);
	bool waits_for_device = BPF_CORE_READ_BITFIELD(task, in_iowait);

	if (call == -1)
		return waits_for_device ? WAIT_FAULT : WAIT_OTHER;
	if (waits_for_device)
		return WAIT_IO;
	switch (call) {
	case SYS_FUTEX:
	case SYS_FUTEX_WAIT:
	case SYS_FUTEX_WAITV:
		return WAIT_FUTEX;
	case SYS_NANOSLEEP:
	case SYS_CLOCK_NANOSLEEP:
		return WAIT_SLEEP;
	case SYS_POLL:
	case SYS_PPOLL:
	case SYS_SELECT:
	case SYS_PSELECT6:
	case SYS_EPOLL_WAIT:
	case SYS_EPOLL_PWAIT:
	case SYS_EPOLL_PWAIT2:
		return WAIT_POLL;
	case SYS_READ:
	case SYS_WRITE:
	case SYS_READV:
	case SYS_WRITEV:
	case SYS_PREAD64:
	case SYS_PWRITE64:
	case SYS_RECVFROM:
	case SYS_RECVMSG:
	case SYS_SENDTO:
	case SYS_SENDMSG:
	case SYS_ACCEPT:
	case SYS_ACCEPT4:
		return WAIT_STREAM;
	case SYS_IOCTL:
		return WAIT_IOCTL;
	}
	return WAIT_OTHER;
}

static __always_inline void leaves_cpu(struct task_struct *prev, struct task_struct *next, bool runnable)
{
	struct thread_state *thread = bpf_task_storage_get(&threads, prev, 0, 0);

	if (!thread)
		return;
	thread->off_ns = bpf_ktime_get_ns();
	thread->clocks.switches++;
	if (runnable) {
		thread->place = PLACE_RUNQUEUE;
		thread->preempted_by = task_id(next);
		introduce_once(next);
	} else {
		thread->place = PLACE_BLOCKED;
		thread->wait_reason = reason_of(prev);
	}
}

static __always_inline void waited(struct thread_state *thread, __u64 blocked_ns, __u64 runqueue_ns)
{
	thread->clocks.runqueue_ns += runqueue_ns;
	thread->clocks.blocked_ns[thread->wait_reason & (WAIT_REASONS - 1)] += blocked_ns;
	thread->blocked_ns += blocked_ns;
	for (int i = 0; i < MAX_DEPTH && i < thread->depth; i++) {
		struct open_call *call = open_call(thread, i);

		if (blocked_ns > call->longest_blocked_ns) {
			call->longest_blocked_ns = blocked_ns;
			call->wait_reason = thread->wait_reason;
			call->woken_by = thread->woken_by;
		}
		if (thread->place == PLACE_RUNQUEUE && runqueue_ns > call->longest_runqueue_ns) {
			call->longest_runqueue_ns = runqueue_ns;
			call->preempted_by = thread->preempted_by;
		}
	}
}

static __always_inline void gets_cpu(struct task_struct *next)
{
	struct thread_state *thread = bpf_task_storage_get(&threads, next, 0, 0);
	__u64 now, wake;

	if (!thread || thread->place == PLACE_RUNNING)
		return;
	now = bpf_ktime_get_ns();
	if (thread->place == PLACE_RUNQUEUE) {
		waited(thread, 0, now - thread->off_ns);
	} else {
		/* A waker on another CPU can come between the thread's decision to block and its switch. */
		wake = thread->wake_ns > thread->off_ns ? thread->wake_ns : thread->off_ns;
		waited(thread, wake - thread->off_ns, now - wake);
	}
	thread->place = PLACE_RUNNING;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempted, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	leaves_cpu(prev, next, preempted || prev_state == 0);
	gets_cpu(next);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *wakee)
{
	struct thread_state *thread = bpf_task_storage_get(&threads, wakee, 0, 0);
	struct task_struct *waker = bpf_get_current_task_btf();

	if (!thread)
		return 0;
	thread->wake_ns = bpf_ktime_get_ns();
	/* A timer ends a sleep; finding that out for each would cost more than all the rest. */
	if (thread->wait_reason == WAIT_SLEEP || in_interrupt(ctx, waker)) {
		thread->woken_by = (struct task_id){};
		return 0;
	}
	thread->woken_by = task_id(waker);
	introduce_once(waker);
	return 0;
}

static __always_inline void fill_snapshot(struct thread_snapshot *snapshot, struct task_struct *task,
					  const struct thread_state *thread)
{
	__u64 now = bpf_ktime_get_ns(), wake;

	fill_head(&snapshot->head, RECORD_THREAD_EXIT, task->tgid, now);
	snapshot->tid = task->pid;
	snapshot->image = thread->image;
	bpf_core_read(snapshot->comm, sizeof(snapshot->comm), &task->comm);
	snapshot->clocks = thread->clocks;
	if (thread->place == PLACE_RUNQUEUE) {
		snapshot->clocks.runqueue_ns += now - thread->off_ns;
	} else if (thread->place == PLACE_BLOCKED) {
		wake = thread->wake_ns > thread->off_ns ? thread->wake_ns : now;
		snapshot->clocks.blocked_ns[thread->wait_reason & (WAIT_REASONS - 1)] += wake - thread->off_ns;
		snapshot->clocks.runqueue_ns += now - wake;
	}
}

/* Read by user space once per bucket of time: the clocks of every watched thread. */
SEC("iter/task")
int thread_clocks(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	struct thread_snapshot snapshot;
	struct thread_state *thread;

	if (!task)
		return 0;
	thread = bpf_task_storage_get(&threads, task, 0, 0);
	if (!thread)
		return 0;
	fill_snapshot(&snapshot, task, thread);
	bpf_seq_write(seq, &snapshot, sizeof(snapshot));
	return 0;
}

/* Fires for every thread that ends, not only for the last of a process. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(thread_exit, struct task_struct *task)
{
	struct thread_state *thread = bpf_task_storage_get(&threads, task, 0, 0);
	struct thread_snapshot *snapshot;

	if (!thread)
		return 0;
	if (thread->depth)
		lose(LOSS_ABANDONED, thread->depth);
	thread->depth = 0;
	thread->wanted = false;
	snapshot = ring_reserve(sizeof(*snapshot), LOSS_LIFE_RING_FULL);
	if (!snapshot)
		return 0;
	fill_snapshot(snapshot, task, thread);
	ring_submit(snapshot);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
