/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Keeps the clocks of threads that make traced calls: how long each was runnable without a CPU, how long blocked and
 * in what, who had its CPU meanwhile and who woke it. Whoever wakes such a thread from a wait is followed from then on
 * in the same way. All others cost a look-up that finds nothing.
 */
#include "stacks.bpf.h"
#include "target.bpf.h"
#include "waited.bpf.h"

enum {
	/* The chain of wake-ups is followed this far back. */
	MOST_HOPS = 5,
	/* Threads that are followed at most. */
	MOST_FOLLOWED = 1024,
	CPU_RUNS = 32,
};

/* Shorter waits are not worth following whoever ended them. */
#define FOLLOWED_WAIT_NS 100000
/* A thread that was moved to another CPU before this had hardly waited for the one it left. */
#define WORTH_NAMING_NS 50000
/* To get a CPU that nobody holds takes a thread some ten microseconds. */
#define HELD_UP_NS 100000
/* A completion this long ago has woken whom it had to wake. */
#define COMPLETION_WAKES_NS 50000

/* Set before loading: whether a thread can get its state where the scheduler's locks are held, see features.rs. */
const volatile bool state_at_wakeups;

__s32 followed;
/* Watched threads that are waiting for a CPU, and since when there has been one all the time. */
__s32 waiting_for_cpu;
__u64 waiting_since_ns;

/* A thread's turn on a CPU, with what there is to say of it later, when it may be gone. */
struct cpu_run {
	struct task_id task;
	__u64 start_ns;
	__u64 end_ns;
	__u64 thread_started_ns;
	char comm[COMM_LENGTH];
};

struct taker_sum {
	struct cpu_taker taker;
	/* One of its turns. */
	__u64 run;
};

/* The last turns on a CPU, written only while a watched thread waits for one. */
struct cpu_history {
	__u64 switched_ns;
	__u64 runs_seen;
	struct cpu_run runs[CPU_RUNS];
	/* Adds up what each had of a stretch; up to four get a place. */
	struct taker_sum sums[4];
};

/* By CPU, as many as there may be. Of a map that has a value for each CPU, older kernels show no other CPU's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_history);
} cpu_histories SEC(".maps");

/* Threads that are to be followed and could not get their state yet: how far from a thread that makes calls. */
struct to_follow {
	__u64 started_ns;
	__u64 hops;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MOST_FOLLOWED);
	__type(key, __u32);
	__type(value, struct to_follow);
} followed_soon SEC(".maps");

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

/* Tells user space who a thread is that is about to be named. */
static __always_inline void introduce_once(struct task_id task, __u64 started_ns, const void *comm)
{
	__u64 *seen = bpf_map_lookup_elem(&introduced, &task.tid);
	struct thread_record *record;

	if (!task.tid || (seen && *seen == started_ns))
		return;
	bpf_map_update_elem(&introduced, &task.tid, &started_ns, BPF_ANY);
	record = introduction(task, comm, 0);
	if (record)
		ring_submit(record);
}

static __always_inline void introduce_task(struct task_struct *task)
{
	introduce_once(task_id(task), task->start_time, &task->comm);
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

/* Only here, while the memory is that of the thread which leaves, can the descriptors that it polls be read. */
static __always_inline __u32 polled_fd(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	long call = BPF_CORE_READ(regs, orig_ax);
	__u32 fd = ~0;

	if ((call == SYS_POLL || call == SYS_PPOLL) && BPF_CORE_READ(regs, si) > 0)
		bpf_probe_read_user(&fd, sizeof(fd), (void *)BPF_CORE_READ(regs, di));
	else if (call == SYS_EPOLL_WAIT || call == SYS_EPOLL_PWAIT || call == SYS_EPOLL_PWAIT2)
		fd = BPF_CORE_READ(regs, di);
	return fd;
}

/* Waits from this long on are worth the stack of whoever ended them. */
#define LONG_WAIT_NS 500000

static __always_inline struct registers user_registers(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct registers from = {
	    .ip = BPF_CORE_READ(regs, ip), .sp = BPF_CORE_READ(regs, sp), .bp = BPF_CORE_READ(regs, bp)};

	return from;
}

/* A place where nobody has come for this long is forgotten before others. */
#define FORGOTTEN_AFTER_MS 8000
/* A thread's longest wait is one of this time. */
#define LATELY_MS 2000
/* A place where it waits that long again and again has a stack this often, however long it waits elsewhere. */
#define STACK_EVERY_MS 1000
#define LEAST_WAIT_US  100

static __always_inline __u32 in_ms(__u64 ns)
{
	return ns >> 20;
}

static __always_inline __u32 worth_of(const struct wait_site *site, __u32 now_ms)
{
	return now_ms - site->seen_ms < FORGOTTEN_AFTER_MS ? site->usual_us : 0;
}

/* What is remembered of a place: one of two entries. A new place takes the one with the shorter waits. */
static __always_inline struct wait_site *wait_site(struct thread_state *thread, __u32 key)
{
	struct wait_site *site = &thread->sites[MASKED(key, WAIT_SITES)];
	struct wait_site *other = &thread->sites[MASKED(key ^ 1, WAIT_SITES)];
	__u32 now_ms = in_ms(thread->off_ns);

	if (site->key == key)
		return site;
	if (other->key == key)
		return other;
	return worth_of(site, now_ms) > worth_of(other, now_ms) ? other : site;
}

/*
 * How long the wait will be is not known yet, and later the thread's memory cannot be read. Places where it has waited
 * long before come first, and new ones.
 */
static __always_inline void take_wait_stack(void *ctx, struct thread_state *thread, struct task_struct *task)
{
	struct registers from = user_registers(task);
	__u64 mixed = (from.ip ^ from.sp << 16) * 0x9e3779b97f4a7c15ULL;
	__u32 key = mixed >> 32;
	struct wait_site *site = wait_site(thread, key);
	bool is_new = site->key != key;
	/* Credit grows during long waits: what comes after them would take it all, if it did not have to be long, too.
	 */
	bool is_long = !is_new && site->usual_us >= LONG_WAIT_NS / 1000 && site->usual_us >= thread->longest_us / 4;
	__u32 now_ms = in_ms(thread->off_ns);
	bool is_due = site->usual_us >= LEAST_WAIT_US && now_ms - site->stack_ms >= STACK_EVERY_MS;
	/* A place that is new may be where it stays for ever. */
	__u64 reserved = is_new || is_due ? 0 : is_long ? RESERVED_CREDIT_NS / 4 : RESERVED_CREDIT_NS;
	bool may_take;

	thread->wait_stack = 0;
	thread->waker_stack = 0;
	if (is_new) {
		site->key = key;
		site->usual_us = 0;
		site->stack_ms = now_ms - STACK_EVERY_MS;
	}
	thread->site = key;
	if (!task->mm)
		return;
	/* Short waits at ever new places may have spent it all. */
	may_take = can_spend(thread, MOMENT_WAIT, thread->off_ns, reserved) ||
		   ((is_new || is_long) && can_overdraw(&thread->overdrawn_ns[is_new], thread->off_ns));
	if (!may_take)
		return;
	thread->wait_stack = take_stack(ctx, thread, &from, MOMENT_WAIT);
	if (!is_new)
		site->stack_ms = now_ms;
}

static __always_inline void note_wait_at_site(struct thread_state *thread, __u64 blocked_ns)
{
	struct wait_site *site = wait_site(thread, thread->site);
	__u32 us = blocked_ns < 1000000000 ? (__u32)blocked_ns / 1000 : 1000000, now_ms = in_ms(thread->off_ns);

	if (site->key == thread->site) {
		site->usual_us = us > site->usual_us ? us : site->usual_us - site->usual_us / 8;
		site->seen_ms = now_ms;
	}
	if (us >= thread->longest_us || now_ms - thread->longest_ms >= LATELY_MS) {
		thread->longest_us = us;
		thread->longest_ms = now_ms;
	}
}

/* The waker runs right now. */
static __always_inline void take_waker_stack(void *ctx, struct thread_state *thread, struct task_struct *waker)
{
	struct thread_state *own = bpf_task_storage_get(&threads, waker, 0, 0);
	struct thread_state *payer = own ? own : thread;
	struct registers from;

	if (!waker->mm || (__u32)waker->tgid == tracer_pid || !can_spend(payer, MOMENT_WAKER, thread->wake_ns, 0))
		return;
	from = user_registers(waker);
	thread->waker_stack = take_stack(ctx, payer, &from, MOMENT_WAKER);
}

static __always_inline void queues_for_cpu(struct thread_state *thread, __u64 now)
{
	thread->queue_cpu = 0;
	thread->is_queued = true;
	if (waiting_for_cpu <= 0)
		waiting_since_ns = now;
	__sync_fetch_and_add(&waiting_for_cpu, 1);
}

/* Remembers the turn that ends on this CPU, while somebody who is watched waits for one. */
static __always_inline void note_turn(struct task_struct *prev)
{
	struct cpu_history *history;
	__u64 now = bpf_ktime_get_ns();
	__u32 cpu = bpf_get_smp_processor_id();
	struct cpu_run *run;

	history = bpf_map_lookup_elem(&cpu_histories, &cpu);
	if (!history)
		return;
	run = &history->runs[MASKED(history->runs_seen, CPU_RUNS)];
	run->task = task_id(prev);
	run->start_ns = history->switched_ns;
	run->end_ns = now;
	run->thread_started_ns = prev->start_time;
	bpf_core_read(run->comm, sizeof(run->comm), &prev->comm);
	history->runs_seen++;
	history->switched_ns = now;
}

/* Adds a turn to the sum of whoever had it. */
static __always_inline void add_turn(struct cpu_history *history, struct task_id task, __u64 ns, __u64 run)
{
	for (int i = 0; i < 4; i++) {
		struct taker_sum *sum = &history->sums[i];

		if (sum->taker.task.tid == task.tid || !sum->taker.ns) {
			sum->taker.task = task;
			sum->taker.ns += ns;
			sum->run = run;
			return;
		}
	}
}

/* Who had a CPU in this span of time: the two that had most of it. */
static __noinline int find_takers(struct cpu_history *history, struct stretch_record *record, __u64 from, __u64 to)
{
	if (!history || !record)
		return 0;
	__builtin_memset(history->sums, 0, sizeof(history->sums));
	for (int i = 0; i < CPU_RUNS; i++) {
		struct cpu_run *run = &history->runs[i];
		__u64 start = run->start_ns > from ? run->start_ns : from;
		__u64 end = run->end_ns < to ? run->end_ns : to;

		if (end > start && run->task.tid)
			add_turn(history, run->task, end - start, i);
	}
	for (int i = 0; i < 4; i++) {
		struct cpu_taker *taker = &history->sums[i].taker;

		if (taker->ns > record->taken_by[0].ns) {
			record->taken_by[1] = record->taken_by[0];
			record->taken_by[0] = *taker;
		} else if (taker->ns > record->taken_by[1].ns) {
			record->taken_by[1] = *taker;
		}
	}
	for (int i = 0; i < 4; i++) {
		struct taker_sum *sum = &history->sums[i];
		__u32 tid = sum->taker.task.tid;

		struct cpu_run *run = &history->runs[MASKED(sum->run, CPU_RUNS)];

		if (tid && (tid == record->taken_by[0].task.tid || tid == record->taken_by[1].task.tid))
			introduce_once(sum->taker.task, run->thread_started_ns, run->comm);
	}
	return 0;
}

static __always_inline void name_takers(struct stretch_record *record, struct thread_state *thread, __u64 now)
{
	__u32 cpu = thread->queue_cpu ? thread->queue_cpu - 1 : bpf_get_smp_processor_id();

	if (!thread->is_throttled)
		find_takers(bpf_map_lookup_elem(&cpu_histories, &cpu), record, now - record->runqueue_ns, now);
}

static __always_inline void name_target(struct wait_target *target, struct task_struct *task,
					struct thread_state *thread)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	long call = BPF_CORE_READ(regs, orig_ax);

	switch (thread->wait_reason) {
	case WAIT_FUTEX:
		return describe_futex(target, regs, call);
	case WAIT_POLL:
		describe_descriptor(target, task, thread->poll_fd);
		return;
	case WAIT_IO:
	case WAIT_STREAM:
	case WAIT_IOCTL:
		describe_descriptor(target, task, BPF_CORE_READ(regs, di));
		return;
	}
}

/* A thread is back on the CPU. Whatever adds up to less than a record is worth waits for the next stretch. */
static __always_inline void report(struct thread_state *thread, struct task_struct *task, __u64 blocked_ns,
				   __u64 runqueue_ns, __u64 now, bool is_seen)
{
	bool was_blocked = thread->place != PLACE_RUNQUEUE;
	bool on_futex = was_blocked && thread->wait_reason == WAIT_FUTEX;
	bool tells_waker = on_futex && thread->owes_waker && thread->woken_by.tid;
	__u64 *unreported = &thread->unreported_blocked_ns[thread->wait_reason & (WAIT_REASONS - 1)];
	struct stretch_record *record;

	*unreported += blocked_ns;
	thread->unreported_runqueue_ns += runqueue_ns;
	thread->unreported++;
	if ((!was_blocked || *unreported < RECORD_QUANTUM_NS) && thread->unreported_runqueue_ns < RECORD_QUANTUM_NS &&
	    !tells_waker)
		return;
	record = ring_reserve(sizeof(*record), LOSS_WAIT_RING_FULL);
	if (!record)
		return;
	__builtin_memset(record, 0, sizeof(*record));
	fill_head(&record->head, RECORD_STRETCH, task->tgid, now);
	record->tid = task->pid;
	record->api = innermost_api(thread);
	record->wait_reason = was_blocked ? thread->wait_reason : WAIT_REASONS;
	record->throttled = thread->is_throttled;
	record->blocked_ns = blocked_ns;
	record->runqueue_ns = runqueue_ns;
	record->all_runqueue_ns = thread->unreported_runqueue_ns;
	record->all_count = thread->unreported;
	record->target.kind = TARGET_KINDS;
	if (was_blocked) {
		record->woken_by = thread->woken_by;
		record->all_blocked_ns = *unreported;
		record->io = thread->io;
		record->stack = thread->wait_stack;
		record->waker_stack = thread->waker_stack;
		if (is_seen)
			name_target(&record->target, task, thread);
		*unreported = 0;
	}
	name_takers(record, thread, now);
	ring_submit(record);
	thread->unreported_runqueue_ns = 0;
	thread->unreported = 0;
	if (on_futex)
		thread->owes_waker = !thread->woken_by.tid;
}

/* Ends the time off the CPU. What a thread waited on is in its registers only if this is seen as it happens. */
static __noinline int is_back(struct thread_state *thread, struct task_struct *task, __u64 now, bool is_seen)
{
	__u64 blocked_ns = 0, runqueue_ns;

	if (!thread || !task)
		return 0;
	if (thread->place != PLACE_RUNQUEUE) {
		blocked_ns = woken_ns(thread, now) - thread->off_ns;
		note_wait_at_site(thread, blocked_ns);
	}
	runqueue_ns = now - thread->off_ns - blocked_ns;
	waited(thread, thread->place == PLACE_SETTLED ? 0 : blocked_ns, runqueue_ns);
	report(thread, task, blocked_ns, runqueue_ns, now, is_seen);
	if (thread->is_queued)
		__sync_fetch_and_add(&waiting_for_cpu, -1);
	thread->is_queued = false;
	thread->place = PLACE_RUNNING;
	return 0;
}

static __always_inline void gets_cpu(struct task_struct *next)
{
	struct thread_state *thread = bpf_task_storage_get(&threads, next, 0, 0);

	if (thread && thread->place != PLACE_RUNNING)
		is_back(thread, next, bpf_ktime_get_ns(), true);
}

/*
 * Some kernels do not tell of what certain tasks do: a thread leaves that was not seen to come back, and maybe not to
 * be woken. How long it has run since then is known to the scheduler.
 */
static __always_inline void came_back_unseen(struct thread_state *thread, struct task_struct *task)
{
	__u64 earliest = woken_ns(thread, thread->off_ns);
	__u64 since = bpf_ktime_get_ns() - (task->se.sum_exec_runtime - task->se.prev_sum_exec_runtime);

	is_back(thread, task, since > earliest ? since : earliest, false);
}

static __always_inline void leaves_cpu(void *ctx, struct thread_state *thread, struct task_struct *prev,
				       struct task_struct *next, bool runnable)
{
	thread->off_ns = bpf_ktime_get_ns();
	thread->clocks.switches++;
	if (runnable) {
		thread->place = PLACE_RUNQUEUE;
		thread->preempted_by = task_id(next);
		thread->is_throttled = is_throttled(prev);
		queues_for_cpu(thread, thread->off_ns);
		introduce_task(next);
	} else {
		thread->place = PLACE_BLOCKED;
		thread->wait_reason = reason_of(prev);
		thread->is_throttled = false;
		/* A waker on another CPU can come between the thread's decision to block and its switch. */
		thread->wake_ns = 0;
		if (prev->__state == TASK_WAKING) {
			thread->wake_ns = thread->off_ns;
			queues_for_cpu(thread, thread->wake_ns);
		} else {
			thread->woken_by = (struct task_id){};
			thread->io = (struct finished_io){};
		}
		if (thread->wait_reason == WAIT_POLL)
			thread->poll_fd = polled_fd(prev);
		take_wait_stack(ctx, thread, prev);
	}
}

static __always_inline int switches(void *ctx, struct task_struct *prev, struct task_struct *next, bool runnable)
{
	struct thread_state *thread = bpf_task_storage_get(&threads, prev, 0, 0);

	if (thread && thread->place != PLACE_RUNNING)
		came_back_unseen(thread, prev);
	if (waiting_for_cpu > 0)
		note_turn(prev);
	if (thread)
		leaves_cpu(ctx, thread, prev, next, runnable);
	gets_cpu(next);
	return 0;
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempted, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	return switches(ctx, prev, next, preempted || prev_state == 0);
}

/*
 * For kernels that do not hand the state over. They take a thread that blocks off its queue at once, so that a waker
 * cannot make it runnable before it has left: what it says itself is what it left with, or TASK_WAKING.
 */
SEC("?tp_btf/sched_switch")
int BPF_PROG(sched_switch_by_state, bool preempted, struct task_struct *prev, struct task_struct *next)
{
	return switches(ctx, prev, next, preempted || prev->__state == 0);
}

/* Watches a thread from now on, to know what holds it up itself. */
static __always_inline void follow(struct task_struct *task, __u8 hops)
{
	struct thread_state *thread;
	__u32 pid = task->tgid;
	__u8 known = 1;

	if (followed >= MOST_FOLLOWED)
		return;
	thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread)
		return;
	__sync_fetch_and_add(&followed, 1);
	thread->clocks.since_ns = bpf_ktime_get_ns();
	thread->device = -1;
	thread->hops = hops;
	bpf_map_update_elem(&known_processes, &pid, &known, BPF_ANY);
}

/* Where getting state for a thread may wake others, the iterator does it when it comes by. */
static __always_inline void follow_waker(struct task_struct *waker, __u8 hops)
{
	struct to_follow soon = {.started_ns = waker->start_time, .hops = hops};
	__u32 tid = waker->pid;

	if (hops > MOST_HOPS || (__u32)waker->tgid == tracer_pid || !waker->mm)
		return;
	if (bpf_task_storage_get(&threads, waker, 0, 0))
		return;
	if (state_at_wakeups)
		follow(waker, hops);
	else
		bpf_map_update_elem(&followed_soon, &tid, &soon, BPF_ANY);
}

static __always_inline void follow_at_last(struct task_struct *task)
{
	__u32 tid = task->pid;
	struct to_follow *soon = bpf_map_lookup_elem(&followed_soon, &tid);

	if (!soon)
		return;
	if (soon->started_ns == task->start_time && task->mm)
		follow(task, soon->hops);
	bpf_map_delete_elem(&followed_soon, &tid);
}

/* The request whose completion is being handled on this CPU is what the thread has waited for. */
static __always_inline void note_completion(struct thread_state *thread)
{
	struct finished_io *io;
	__u32 zero = 0;

	thread->io = (struct finished_io){};
	if (thread->wait_reason != WAIT_IO && thread->wait_reason != WAIT_FAULT)
		return;
	io = bpf_map_lookup_elem(&completions, &zero);
	if (io && thread->wake_ns - io->at_ns < COMPLETION_WAKES_NS)
		thread->io = *io;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *wakee)
{
	struct thread_state *thread = bpf_task_storage_get(&threads, wakee, 0, 0);
	struct task_struct *waker = bpf_get_current_task_btf();
	__u64 now;

	if (!thread)
		return 0;
	/* It came back unseen, and was about to wait again. */
	if (thread->place == PLACE_SETTLED || (thread->place == PLACE_BLOCKED && thread->wake_ns))
		return 0;
	now = bpf_ktime_get_ns();
	if (thread->place == PLACE_BLOCKED)
		queues_for_cpu(thread, now);
	thread->wake_ns = now;
	note_completion(thread);
	/* A timer ends a sleep; finding that out for each would cost more than all the rest. Devices complete requests
	   in whatever context is at hand. */
	if (thread->wait_reason == WAIT_SLEEP || thread->io.at_ns || in_interrupt(ctx, waker)) {
		thread->woken_by = (struct task_id){};
		return 0;
	}
	thread->woken_by = task_id(waker);
	introduce_task(waker);
	if (thread->place != PLACE_BLOCKED)
		return 0;
	if (thread->wake_ns - thread->off_ns >= FOLLOWED_WAIT_NS)
		follow_waker(waker, thread->hops + 1);
	/* Who holds the interpreter lock shows only at the end of a wait that timers have cut into pieces. */
	if (thread->wake_ns - thread->off_ns >= LONG_WAIT_NS ||
	    (thread->wait_reason == WAIT_FUTEX && thread->owes_waker))
		take_waker_stack(ctx, thread, waker);
	return 0;
}

/* What a watched thread computes shows neither in calls nor in waits: some times a second, whoever runs is looked at.
 */
SEC("perf_event")
int run_sample(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = bpf_task_storage_get(&threads, task, 0, 0);
	__u64 now = bpf_ktime_get_ns(), stack;
	struct sample_record *record;
	struct registers from;

	if (!task->mm || task_id(task).pid == tracer_pid)
		return 0;
	/* Others are of interest while they may keep a watched thread from its CPU. */
	if (!thread && (waiting_for_cpu <= 0 || now - waiting_since_ns < HELD_UP_NS))
		return 0;
	if (!can_spend(thread, MOMENT_SAMPLE, now, 0))
		return 0;
	from = user_registers(task);
	stack = take_stack(ctx, thread, &from, MOMENT_SAMPLE);
	record = stack ? ring_reserve(sizeof(*record), LOSS_STACK_RING_FULL) : 0;
	if (!record)
		return 0;
	fill_head(&record->head, RECORD_SAMPLE, task->tgid, now);
	record->tid = task->pid;
	record->reserved = 0;
	record->stack = stack;
	ring_submit(record);
	return 0;
}

/* A thread that is moved while it waits has waited for the CPU it leaves. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(sched_migrate, struct task_struct *task, int cpu)
{
	struct thread_state *thread = bpf_task_storage_get(&threads, task, 0, 0);
	__u64 since;

	if (!thread || thread->place == PLACE_RUNNING || thread->queue_cpu)
		return 0;
	since = thread->place == PLACE_RUNQUEUE ? thread->off_ns : thread->wake_ns;
	if (since && bpf_ktime_get_ns() - since > WORTH_NAMING_NS)
		thread->queue_cpu = cpu_of(task) + 1;
	return 0;
}

static __always_inline void fill_standing(struct standing *standing, const struct thread_state *thread)
{
	const struct open_call *call = &thread->open[0];
	bool is_blocked = thread->place == PLACE_BLOCKED && !thread->wake_ns;
	__u64 since = thread->depth ? call->start_ns : is_blocked ? thread->off_ns : 0;

	if (thread->hops || thread->has_exited)
		since = 0;
	standing->since_ns = since;
	standing->stack = thread->last_stack_ns >= since ? thread->last_stack : 0;
	standing->api = thread->depth ? call->api + 1 : 0;
	standing->removals = call->removals;
	standing->wait_reason = is_blocked ? thread->wait_reason : WAIT_REASONS;
}

static __always_inline void fill_snapshot(struct thread_snapshot *snapshot, struct task_struct *task,
					  const struct thread_state *thread)
{
	__u64 now = bpf_ktime_get_ns(), wake;

	fill_head(&snapshot->head, RECORD_THREAD_EXIT, task->tgid, now);
	snapshot->tid = task->pid;
	snapshot->image = thread->image;
	bpf_core_read(snapshot->comm, sizeof(snapshot->comm), &task->comm);
	snapshot->major_faults = task->maj_flt;
	snapshot->minor_faults = task->min_flt;
	snapshot->system_ns = task->stime;
	snapshot->clocks = thread->clocks;
	if (thread->place == PLACE_RUNQUEUE) {
		snapshot->clocks.runqueue_ns += now - thread->off_ns;
		if (thread->is_throttled)
			snapshot->clocks.throttled_ns += now - thread->off_ns;
	} else if (thread->place == PLACE_BLOCKED) {
		wake = woken_ns(thread, now);
		snapshot->clocks.blocked_ns[thread->wait_reason & (WAIT_REASONS - 1)] += wake - thread->off_ns;
		snapshot->clocks.runqueue_ns += now - wake;
	}
	fill_standing(&snapshot->standing, thread);
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
	if (!thread && !state_at_wakeups)
		follow_at_last(task);
	if (!thread || thread->has_exited)
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
	thread->has_exited = true;
	if (thread->hops)
		__sync_fetch_and_add(&followed, -1);
	snapshot = ring_reserve(sizeof(*snapshot), LOSS_LIFE_RING_FULL);
	if (!snapshot)
		return 0;
	fill_snapshot(snapshot, task, thread);
	ring_submit(snapshot);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
