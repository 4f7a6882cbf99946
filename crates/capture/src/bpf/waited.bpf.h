/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What time off the CPU does to a thread's clocks and to the calls that it is in. */
#ifndef GPUWHY_WAITED_BPF_H
#define GPUWHY_WAITED_BPF_H

#include "shared.bpf.h"

/*
 * When a blocked thread could run again, or what is given where nobody was seen to wake it. A waker on another CPU can
 * look at the clock just before the thread that leaves does.
 */
static __always_inline __u64 woken_ns(const struct thread_state *thread, __u64 otherwise)
{
	if (!thread->wake_ns)
		return otherwise;
	return thread->wake_ns > thread->off_ns ? thread->wake_ns : thread->off_ns;
}

/* A thread has been off the CPU, which may be known only some time after it came back. */
static __always_inline void waited(struct thread_state *thread, __u64 blocked_ns, __u64 runqueue_ns)
{
	thread->clocks.runqueue_ns += runqueue_ns;
	if (thread->is_throttled)
		thread->clocks.throttled_ns += runqueue_ns;
	thread->clocks.blocked_ns[thread->wait_reason & (WAIT_REASONS - 1)] += blocked_ns;
	thread->blocked_ns += blocked_ns;
	for (int i = 0; i < MAX_DEPTH && i < thread->depth; i++) {
		struct open_call *call = open_call(thread, i);

		if (call->start_ns > thread->off_ns) {
			/* It began when the thread was back. */
			call->blocked_ns += blocked_ns;
			call->runqueue_ns += runqueue_ns;
			continue;
		}
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

#endif
