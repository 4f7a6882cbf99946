/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Time that watched threads spend in ioctls: the way into the GPU's kernel driver. */
#include "work.bpf.h"

SEC("tracepoint/syscalls/sys_enter_ioctl")
int ioctl_enter(struct trace_event_raw_sys_enter *ctx)
{
	enum { REQUEST = 1 };

	begin_work(WORK_IOCTL, ctx->args[REQUEST]);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_ioctl")
int ioctl_exit(void *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

	end_work_on(WORK_IOCTL, BPF_CORE_READ(regs, di));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
