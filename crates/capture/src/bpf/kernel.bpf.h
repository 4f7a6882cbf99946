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
#include <bpf/bpf_endian.h>
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
	unsigned short i_mode;
	__u32 i_rdev;
	unsigned long i_ino;
	__u32 i_generation;
	struct super_block *i_sb;
} KERNEL_TYPE;

struct qstr {
	const unsigned char *name;
} KERNEL_TYPE;

struct dentry {
	struct qstr d_name;
} KERNEL_TYPE;

struct path {
	struct dentry *dentry;
} KERNEL_TYPE;

struct file {
	struct inode *f_inode;
	struct path f_path;
	void *private_data;
} KERNEL_TYPE;

struct in6_addr {
	__u8 bytes[16];
};

struct sock_common {
	__u32 skc_daddr;
	__u16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	__u32 skc_rcv_saddr;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} KERNEL_TYPE;

struct socket;

struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket;
} KERNEL_TYPE;

struct socket {
	short type;
	struct file *file;
	struct sock *sk;
} KERNEL_TYPE;

struct tcp_sock {
	__u32 srtt_us;
	__u32 total_retrans;
	__u32 dsack_dups;
} KERNEL_TYPE;

struct gendisk {
	int major;
	int first_minor;
} KERNEL_TYPE;

struct request_queue {
	struct gendisk *disk;
} KERNEL_TYPE;

struct request {
	struct request_queue *q;
	__u32 cmd_flags;
	unsigned int __data_len;
} KERNEL_TYPE;

struct cfs_rq {
	int throttle_count;
} KERNEL_TYPE;

struct sched_entity {
	__u64 sum_exec_runtime;
	__u64 prev_sum_exec_runtime;
	struct cfs_rq *cfs_rq;
} KERNEL_TYPE;

struct thread_info {
	__u32 cpu;
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

struct mm_struct;

struct thread_struct {
	unsigned long fsbase;
} KERNEL_TYPE;

/* Where a function whose return is probed will return to. */
struct return_instance {
	unsigned long stack;
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
} KERNEL_TYPE;

struct uprobe_task {
	struct return_instance *return_instances;
} KERNEL_TYPE;

enum { TASK_WAKING = 0x200 };

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	void *stack;
	struct sched_entity se;
	struct mm_struct *mm;
	__u64 stime;
	unsigned long min_flt;
	unsigned long maj_flt;
	int pid;
	int tgid;
	int exit_code;
	unsigned int in_iowait : 1;
	__u64 start_time;
	char comm[16];
	struct task_struct *group_leader;
	struct files_struct *files;
	struct signal_struct *signal;
	struct uprobe_task *utask;
	struct thread_struct thread;
} KERNEL_TYPE;

/* Until 5.16 the CPU that a task is on stood here. */
struct task_struct___with_cpu {
	unsigned int cpu;
} KERNEL_TYPE;

/* Kernel 6.18 and later stop each task by itself when its cgroup's quota is used up. */
struct task_struct___throttled {
	bool throttled;
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

struct trace_event_raw_mark_victim {
	int pid;
} KERNEL_TYPE;

/* The file behind a descriptor of a task. */
static __always_inline struct file *file_of(struct task_struct *task, __u32 fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files, *file = 0;

	if (fd >= BPF_CORE_READ(table, max_fds))
		return 0;
	files = BPF_CORE_READ(table, fd);
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	return file;
}

static __always_inline __u32 cpu_of(struct task_struct *task)
{
	struct task_struct___with_cpu *older = (void *)task;

	if (bpf_core_field_exists(older->cpu))
		return BPF_CORE_READ(older, cpu);
	return BPF_CORE_READ(task, thread_info.cpu);
}

/* Whether a thread that is about to wait for a CPU does so because its cgroup's quota is used up. */
static __always_inline bool is_throttled(struct task_struct *task)
{
	struct task_struct___throttled *newer = (void *)task;

	if (bpf_core_field_exists(newer->throttled))
		return BPF_CORE_READ(newer, throttled);
	return BPF_CORE_READ(task, se.cfs_rq, throttle_count) > 0;
}

/* What the lower bits of an inode's mode say it is. */
enum file_mode {
	MODE_KIND = 0170000,
	MODE_FIFO = 0010000,
	MODE_CHARACTER = 0020000,
	MODE_BLOCK = 0060000,
	MODE_REGULAR = 0100000,
	MODE_SOCKET = 0140000,
};

enum {
	FAMILY_UNIX = 1,
	FAMILY_INET = 2,
	FAMILY_INET6 = 10,
	SOCKET_STREAM = 1,
};

/* Operations of the futex system call, without their flags. */
enum {
	FUTEX_COMMAND = 0x7f,
	FUTEX_COMMAND_WAIT = 0,
	FUTEX_COMMAND_LOCK_PI = 6,
	FUTEX_COMMAND_LOCK_PI2 = 13,
};

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
