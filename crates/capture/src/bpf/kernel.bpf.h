/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The few kernel types the programs read, relocated to the running kernel by CO-RE, and what differs between
 * kernels and machines.
 */
#ifndef GPUWHY_KERNEL_BPF_H
#define GPUWHY_KERNEL_BPF_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define KERNEL_TYPE __attribute__((preserve_access_index))

/* bpf_tracing.h names registers as the kernel does only when it believes that the kernel's own types are here. */
#define __VMLINUX_H__
#ifdef __TARGET_ARCH_x86
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#else
#error "only x86-64 so far"
#endif

#include <bpf/bpf_tracing.h>

/*
 * A register of the probed thread by its offset in pt_regs (x86-64). Written as one instruction, because the compiler
 * otherwise merges several such reads into one with a computed address, which the verifier refuses.
 */
#define REGISTER_ARGUMENT(ctx, offset)                                                                                 \
	({                                                                                                             \
		__u64 register_value;                                                                                  \
		asm volatile("%[value] = *(u64 *)(%[regs] + " #offset ")"                                              \
			     : [value] "=r"(register_value)                                                            \
			     : [regs] "r"(ctx));                                                                       \
		register_value;                                                                                        \
	})

struct super_block {
	__u32 s_dev;
} KERNEL_TYPE;

struct inode {
	unsigned long i_ino;
	__u32 i_generation;
	struct super_block *i_sb;
} KERNEL_TYPE;

struct file {
	struct inode *f_inode;
} KERNEL_TYPE;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} KERNEL_TYPE;

struct files_struct {
	struct fdtable *fdt;
} KERNEL_TYPE;

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
} KERNEL_TYPE;

struct task_struct {
	void *stack;
	int pid;
	int tgid;
	int exit_code;
	unsigned int in_iowait : 1;
	__u64 start_time;
	char comm[16];
	struct task_struct *group_leader;
	struct files_struct *files;
	struct signal_struct *signal;
} KERNEL_TYPE;

struct linux_binprm {
	struct file *file;
} KERNEL_TYPE;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} KERNEL_TYPE;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} KERNEL_TYPE;

struct trace_event_raw_sys_enter {
	long id;
	unsigned long args[6];
} KERNEL_TYPE;

/* A task's kernel stack (x86-64; twice as much with KASAN, where the larger half goes unused here). */
#define KERNEL_STACK_BYTES 16384

/* Where the kernel keeps the entry code of interrupts: a return address in there says that an interrupt is running. */
extern const void __irqentry_text_start __ksym;
extern const void __irqentry_text_end __ksym;

/* The system calls whose wait has a name (x86-64 numbers). */
enum system_call {
	SYS_READ = 0,
	SYS_WRITE = 1,
	SYS_POLL = 7,
	SYS_IOCTL = 16,
	SYS_PREAD64 = 17,
	SYS_PWRITE64 = 18,
	SYS_READV = 19,
	SYS_WRITEV = 20,
	SYS_SELECT = 23,
	SYS_NANOSLEEP = 35,
	SYS_ACCEPT = 43,
	SYS_SENDTO = 44,
	SYS_RECVFROM = 45,
	SYS_SENDMSG = 46,
	SYS_RECVMSG = 47,
	SYS_FUTEX = 202,
	SYS_CLOCK_NANOSLEEP = 230,
	SYS_EPOLL_WAIT = 232,
	SYS_PSELECT6 = 270,
	SYS_PPOLL = 271,
	SYS_EPOLL_PWAIT = 281,
	SYS_ACCEPT4 = 288,
	SYS_EPOLL_PWAIT2 = 441,
	SYS_FUTEX_WAITV = 449,
	SYS_FUTEX_WAIT = 455,
};

#define PROT_EXEC     0x4
#define MAP_ANONYMOUS 0x20

/*
 * An index into an array whose size is a power of two, written so that the compiler cannot reason the mask away: the
 * verifier does not follow such reasoning, and that of 6.1 and 6.12 loses a comparison where the compiler keeps the
 * variable on the stack.
 */
#define MASKED(index, size)                                                                                            \
	({                                                                                                             \
		__u64 masked = (index);                                                                                \
		_Static_assert(((size) & ((size) - 1)) == 0, "not a power of two");                                    \
		asm volatile("%[masked] &= %[mask]" : [masked] "+r"(masked) : [mask] "i"((size) - 1));                 \
		masked;                                                                                                \
	})

/* What `ret` takes off the stack, so that a return finds the entry it belongs to by its stack pointer. */
#define RETURN_SP_SHIFT 8

#endif
