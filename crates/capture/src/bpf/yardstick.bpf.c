/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Programs that do nothing, attached to a function of the tracer's own: what attaches on this kernel, and what a
 * bare probe costs on this machine.
 */
#include "kernel.bpf.h"

SEC("?uprobe.session")
int empty_session(struct pt_regs *ctx)
{
	return 0;
}

SEC("?uprobe.multi")
int empty_multi(struct pt_regs *ctx)
{
	return 0;
}

SEC("?uprobe")
int empty_one(struct pt_regs *ctx)
{
	return 0;
}

SEC("?uretprobe")
int empty_return(struct pt_regs *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
