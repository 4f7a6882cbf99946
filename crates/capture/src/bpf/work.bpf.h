/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Spans of kernel work in a watched thread's own time. */
#ifndef GPUWHY_WORK_BPF_H
#define GPUWHY_WORK_BPF_H

#include "target.bpf.h"

static __always_inline struct thread_state *working_thread(void)
{
	return bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
}

static __always_inline void begin_work(enum work_kind kind, __u32 code)
{
	struct thread_state *thread = working_thread();

	if (!thread)
		return;
	thread->work[kind].start_ns = bpf_ktime_get_ns();
	thread->work[kind].code = code;
}

static __always_inline void report_work(struct thread_state *thread, enum work_kind kind, __u64 now, __u64 ns, __u32 fd)
{
	struct work_record *record = ring_reserve(sizeof(*record), LOSS_WAIT_RING_FULL);
	struct work_state *work = &thread->work[kind];
	struct task_struct *task = bpf_get_current_task_btf();

	if (!record)
		return;
	fill_head(&record->head, RECORD_WORK, task->tgid, now);
	record->tid = task->pid;
	record->api = innermost_api(thread);
	record->kind = kind;
	record->reserved = 0;
	record->duration_ns = ns;
	record->all_ns = work->unreported_ns;
	record->all_count = work->unreported;
	record->code = work->code;
	record->target = (struct wait_target){.kind = TARGET_KINDS};
	if (kind == WORK_IOCTL)
		describe_descriptor(&record->target, task, fd);
	ring_submit(record);
	work->unreported_ns = 0;
	work->unreported = 0;
}

/* `fd` is that of an ioctl. */
static __always_inline void end_work_on(enum work_kind kind, __u32 fd)
{
	struct thread_state *thread = working_thread();
	__u64 now = bpf_ktime_get_ns(), ns;
	struct work_state *work;

	if (!thread)
		return;
	work = &thread->work[kind];
	if (!work->start_ns)
		return;
	ns = now - work->start_ns;
	work->start_ns = 0;
	work->unreported_ns += ns;
	work->unreported++;
	thread->clocks.work_ns[kind] += ns;
	if (work->unreported_ns >= RECORD_QUANTUM_NS)
		report_work(thread, kind, now, ns, fd);
}

static __always_inline void end_work(enum work_kind kind)
{
	end_work_on(kind, 0);
}

#endif
