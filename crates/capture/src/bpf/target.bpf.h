/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What a thread in a system call waits on: the descriptor or address in its registers, followed to the thing itself. */
#ifndef GPUWHY_TARGET_BPF_H
#define GPUWHY_TARGET_BPF_H

#include "shared.bpf.h"

static __always_inline void describe_socket(struct wait_target *target, struct socket *socket)
{
	struct sock *sock = BPF_CORE_READ(socket, sk);
	__u16 family = BPF_CORE_READ(sock, __sk_common.skc_family);

	if (family == FAMILY_UNIX) {
		target->kind = TARGET_UNIX;
		return;
	}
	target->kind = TARGET_SOCKET;
	if (family != FAMILY_INET && family != FAMILY_INET6)
		return;
	if (BPF_CORE_READ(socket, type) == SOCKET_STREAM)
		target->kind = TARGET_TCP;
	target->port = bpf_ntohs(BPF_CORE_READ(sock, __sk_common.skc_dport));
	target->device = BPF_CORE_READ(sock, __sk_common.skc_num);
	if (family == FAMILY_INET6) {
		BPF_CORE_READ_INTO(&target->name, sock, __sk_common.skc_v6_daddr);
	} else {
		target->name[0] = 0;
		target->name[1] = (__u64)BPF_CORE_READ(sock, __sk_common.skc_daddr) << 32 | 0xffff0000;
	}
}

static __always_inline void describe_file(struct wait_target *target, struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	__u16 mode = BPF_CORE_READ(inode, i_mode) & MODE_KIND;
	char name[4] = {};

	target->name[0] = BPF_CORE_READ(inode, i_ino);
	target->name[1] = 0;
	target->device = BPF_CORE_READ(inode, i_sb, s_dev);
	target->kind = TARGET_OTHER;
	if (mode == MODE_FIFO) {
		target->kind = TARGET_PIPE;
	} else if (mode == MODE_SOCKET) {
		describe_socket(target, BPF_CORE_READ(file, private_data));
	} else if (mode == MODE_CHARACTER || mode == MODE_BLOCK) {
		target->kind = TARGET_DEVICE;
		target->device = BPF_CORE_READ(inode, i_rdev);
	} else {
		/* Files without a place in a file system have a name in brackets instead: "[eventfd]". */
		bpf_probe_read_kernel(name, sizeof(name), BPF_CORE_READ(file, f_path.dentry, d_name.name));
		if (name[0] == '[' && name[1] == 'e' && name[2] == 'v' && name[3] == 'e')
			target->kind = TARGET_EVENTFD;
		else if (mode == MODE_REGULAR && name[0] != '[')
			target->kind = TARGET_FILE;
	}
}

static __noinline int describe_descriptor(struct wait_target *target, struct task_struct *task, __u32 fd)
{
	struct file *file;

	if (!target)
		return 0;
	file = file_of(task, fd);
	if (file)
		describe_file(target, file);
	return 0;
}

static __always_inline void describe_futex(struct wait_target *target, struct pt_regs *regs, long call)
{
	__u32 command = BPF_CORE_READ(regs, si) & FUTEX_COMMAND;
	bool is_lock =
	    command == FUTEX_COMMAND_WAIT || command == FUTEX_COMMAND_LOCK_PI || command == FUTEX_COMMAND_LOCK_PI2;

	target->name[0] = BPF_CORE_READ(regs, di);
	target->kind = call == SYS_FUTEX && is_lock ? TARGET_LOCK : TARGET_SIGNAL;
}

#endif
