/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The life of traced processes: who forks whom, what they exec, when they are gone, and which files become their
 * code, so that a library is attached as soon as somebody maps it.
 */
#include "shared.bpf.h"

struct file_key {
	__u64 inode;
	__u32 device;
	__u32 generation;
};

/* Files user space has looked at. It says so itself: whoever maps a file may be gone before anybody has looked. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct file_key);
	__type(value, __u8);
} seen_files SEC(".maps");

static __always_inline bool is_known(__u32 pid)
{
	return bpf_map_lookup_elem(&known_processes, &pid) || bpf_map_lookup_elem(&targets, &pid);
}

/* What else there is to say of a turn in a process's life. */
struct life_details {
	__u32 child_pid;
	__s32 status;
	__u32 old_tid;
	__u32 old_image;
};

static __always_inline void report_life(enum record_kind kind, struct task_struct *task, struct life_details details)
{
	struct life_record *record = ring_reserve(sizeof(*record), LOSS_LIFE_RING_FULL);

	if (!record)
		return;
	fill_head(&record->head, kind, task->tgid, bpf_ktime_get_ns());
	record->child_pid = details.child_pid;
	record->status = details.status;
	record->old_tid = details.old_tid;
	record->old_image = details.old_image;
	bpf_core_read(record->comm, sizeof(record->comm), &task->comm);
	ring_submit(record);
}

static __always_inline void report_file(__u32 pid, struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct file_key key = {};
	struct file_record *record;

	key.inode = BPF_CORE_READ(inode, i_ino);
	key.device = BPF_CORE_READ(inode, i_sb, s_dev);
	key.generation = BPF_CORE_READ(inode, i_generation);
	if (bpf_map_lookup_elem(&seen_files, &key))
		return;
	record = ring_reserve(sizeof(*record), LOSS_LIFE_RING_FULL);
	if (!record)
		return;
	fill_head(&record->head, RECORD_FILE, pid, bpf_ktime_get_ns());
	record->inode = key.inode;
	record->device = key.device;
	record->generation = key.generation;
	ring_submit_urgent(record);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 pid = parent->tgid, child_pid = child->tgid;
	__u8 *target = bpf_map_lookup_elem(&targets, &pid);
	__u8 inherited = 1;

	if (child->pid != child->tgid)
		return 0;
	if (target)
		bpf_map_update_elem(&targets, &child_pid, &inherited, BPF_ANY);
	if (is_known(pid))
		report_life(RECORD_FORK, parent, (struct life_details){.child_pid = child_pid});
	return 0;
}

/* No thread has had so many: what a process without a state leaves behind when it replaces its image. */
#define NO_IMAGE (~0U)

/* Whatever the old image was inside of never returns, and what it counted is closed. */
static __always_inline void forget_image(struct thread_state *thread)
{
	if (thread->depth)
		lose(LOSS_ABANDONED, thread->depth);
	thread->image++;
	thread->depth = 0;
	thread->pushed = 0;
	thread->device = -1;
	__builtin_memset(thread->slots, 0, sizeof(thread->slots));
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	struct thread_state *thread = bpf_task_storage_get(&threads, task, 0, 0);
	struct life_details details = {.old_tid = old_pid, .old_image = NO_IMAGE};
	__u32 pid = task->tgid;

	if (thread) {
		details.old_image = thread->image;
		forget_image(thread);
	}
	if (is_known(pid))
		report_life(RECORD_EXEC, task, details);
	if (is_wanted(pid))
		report_file(pid, bprm->file);
	return 0;
}

/* Fires for every thread; the process is gone when no thread is left alive. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	__u32 pid = task->tgid;

	if (BPF_CORE_READ(task, signal, live.counter) != 0)
		return 0;
	if (is_known(pid))
		report_life(RECORD_EXIT, task, (struct life_details){.status = task->group_leader->exit_code});
	bpf_map_delete_elem(&targets, &pid);
	bpf_map_delete_elem(&known_processes, &pid);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_mmap")
int file_mapped(struct trace_event_raw_sys_enter *ctx)
{
	enum { PROTECTION = 2, FLAGS = 3, FILE = 4 };
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 pid = task->tgid, fd = ctx->args[FILE];
	struct file *file;

	if (!(ctx->args[PROTECTION] & PROT_EXEC) || (ctx->args[FLAGS] & MAP_ANONYMOUS))
		return 0;
	if (!is_wanted(pid))
		return 0;
	file = file_of(task, fd);
	if (file)
		report_file(pid, file);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
