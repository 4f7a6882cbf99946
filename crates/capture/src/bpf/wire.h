/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The one contract between the BPF programs and Rust: what lies in maps and rings.
 * Rust sees these types through the generated skeleton (see the end of this file).
 * Numbers are never reused. All times are CLOCK_MONOTONIC nanoseconds.
 */
#ifndef GPUWHY_WIRE_H
#define GPUWHY_WIRE_H

#define KEEP_NONE (~0ULL)

#pragma clang diagnostic push
#pragma clang diagnostic error "-Wpadded"

enum limits {
	MAX_APIS = 512,	  /* rows over all libraries */
	MAX_DEPTH = 16,	  /* traced calls inside each other */
	MAX_RINGS = 64,	  /* shards of the ring */
	HISTOGRAM = 256,  /* buckets, see histogram.rs */
	MAX_FACTORS = 3,  /* operands whose product is a number of bytes */
	MAX_OWN = 8,	  /* operands of a call that only its library has */
	COMM_LENGTH = 16, /* a thread's name with its zero */
	RECORDER_SHARDS = 4,
	RECORDER_SLOTS = 16384, /* calls that each shard of the recorder remembers */
	TAKERS = 2,		/* threads that are named for having had the CPU meanwhile */
	MAX_NATIVE_FRAMES = 256,
	MAX_PYTHON_FRAMES = 128,
	MAX_KERNEL_FRAMES = 32,
	STACK_WORDS = 1024,	 /* what all frames of a stack take at most, rounded up */
	MAX_MAPPINGS = 65536,	 /* over all processes */
	SHARD_ROWS = 65536,	 /* rows of unwind tables in one piece of memory */
	MAX_SHARDS = 160,	 /* such pieces: 80 MB */
	MAX_LAYOUTS = 16,	 /* of Python's objects */
	PYTHON_FRAME_READ = 128, /* of a frame and of a code object, at most */
	PYTHON_CODE_READ = 256,
	CODE_HEAD_BYTES = 256, /* of code objects that are copied, at most */
	CODE_STRING_BYTES = 512,
	CODE_LINES_BYTES = 2048,
	WALK_LEVELS = 2, /* walks that interrupt each other on a CPU */
};

/*
 * A probe's cookie: the row, and what kind of link it is. One of the usual kind has neither bit set, and a number that
 * tells it from the link whose place it took, or that took its place.
 */
enum cookie_bits {
	COOKIE_ROW = 0xffff,
	COOKIE_OWN_LINK = 1 << 16,
	COOKIE_BURST = 1 << 17,
	COOKIE_GENERATION_SHIFT = 24,
};

/* Which of a function's links are due, written by user space. */
struct row_state {
	/* An enum row_mode. */
	__u8 mode;
	/* The generation of links of the usual kind that is due. */
	__u8 generation;
	/* Changes when links are about to be removed: the returns of calls that entered before may not be seen. */
	__u16 removals;
};

/* What is done with a function for now, see Sampling in probes.rs. */
enum row_mode {
	ROW_ALWAYS = 0,
	/* Seen while a burst is open, except in processes that have a link of their own. */
	ROW_IN_BURSTS = 1,
	/* The same, and gets no record. */
	ROW_COUNTED_IN_BURSTS = 3,
};

/* In the order of WaitReason in model. */
enum wait_reason {
	WAIT_FUTEX,
	WAIT_IO,
	WAIT_FAULT,
	WAIT_SLEEP,
	WAIT_POLL,
	WAIT_STREAM,
	WAIT_IOCTL,
	WAIT_OTHER,
	WAIT_REASONS,
};

/* What a blocked thread waits on, in the order of TargetKind in model; the interpreter lock is told by user space. */
enum target_kind {
	TARGET_LOCK,
	TARGET_SIGNAL,
	TARGET_GIL,
	TARGET_PIPE,
	TARGET_UNIX,
	TARGET_TCP,
	TARGET_SOCKET,
	TARGET_EVENTFD,
	TARGET_FILE,
	TARGET_DEVICE,
	TARGET_OTHER,
	TARGET_KINDS,
};

/* Kernel work in a thread's own time, in the order of WorkKind in model. */
enum work_kind {
	WORK_RECLAIM,
	WORK_COMPACTION,
	WORK_IOCTL,
	WORK_KINDS,
};

/* Losses the kernel counts, in the order of LossReason in model. */
enum loss_reason {
	LOSS_RING_FULL,
	LOSS_UNCOUNTED,
	LOSS_NO_THREAD_STATE,
	LOSS_TOO_DEEP,
	LOSS_ABANDONED,
	LOSS_UNMATCHED,
	LOSS_LIFE_RING_FULL,
	LOSS_CUT_OFF,
	LOSS_WAIT_RING_FULL,
	LOSS_STACK_RING_FULL,
	LOSS_REASONS,
};

/* When a stack was taken, in the order of StackMoment in model. */
enum stack_moment {
	MOMENT_CALL,
	MOMENT_WAIT,
	MOMENT_WAKER,
	MOMENT_SAMPLE,
	MOMENTS,
};

/* How the walk over native frames ended, in the order of WalkEnd in model. */
enum walk_end {
	WALK_COMPLETE,
	WALK_TOO_DEEP,
	WALK_UNREADABLE,
	WALK_NO_MAPPING,
	WALK_NO_RULE,
	WALK_NO_PROGRESS,
	WALK_NO_FRAME_POINTER,
	WALK_NO_PROCESS,
	WALK_FRAME_POINTERS,
	WALK_NOT_WALKED,
	WALK_ENDS,
};

/* How the walk over Python's frames ended, in the order of PythonEnd in model. */
enum python_end {
	PYTHON_NONE,
	PYTHON_COMPLETE,
	PYTHON_TOO_DEEP,
	PYTHON_UNREADABLE,
	PYTHON_NO_THREAD,
	PYTHON_BROKEN,
	PYTHON_ENDS,
};

/* How to leave a frame: the lower bits of a rule, see table.rs of the stacks crate. */
enum rule_kind {
	RULE_NONE,
	/* The outermost frame. */
	RULE_END,
	/* Where the frame ends (its canonical frame address): above the stack pointer, or above the frame pointer. */
	RULE_SP,
	RULE_BP,
	RULE_PLT,
	/* What is stored there. */
	RULE_AT_BP,
	/* The kernel's frame around a signal handler. */
	RULE_SIGNAL,
	RULE_AT_SP,
};

/* What becomes of the frame pointer. */
enum bp_rule {
	BP_UNCHANGED,
	/* It is stored at the end of the frame plus an offset. */
	BP_SAVED,
	/* It is stored at the frame pointer plus an offset. */
	BP_AT_BP,
	BP_UNKNOWN,
};

struct unwind_row {
	/* In the file's own numbering. It holds up to the next row. */
	__u32 address;
	/* From the lowest bit: 4 bits rule_kind, 2 bits bp_rule, 10 bits offset of the frame pointer, 16 bits offset
	 * of the frame's end. Offsets are signed, in units of 8 bytes. */
	__u32 rule;
};

struct unwind_shard {
	struct unwind_row rows[SHARD_ROWS];
};

enum mapping_flags {
	/* Every function keeps a frame pointer once it is past its first instructions. */
	MAPPING_FRAME_POINTERS = 1,
};

/* Code of a process whose unwind rows, if there are any, lie in one shard. */
struct code_mapping {
	__u64 start;
	__u64 end;
	/* What to take from an address to get the one in the file. */
	__u64 bias;
	__u32 shard;
	__u32 first_row;
	__u32 rows;
	/* Of enum mapping_flags. */
	__u32 flags;
};

/* What is known of a process whose stacks are to be walked. */
struct walked_process {
	/* Its mappings lie one after the other, in the order of addresses. */
	__u32 first_mapping;
	__u32 mappings;
	/* Tells stacks of this program from those of another that had the same number. */
	__u32 identity;
	/* Of its mappings, of all that there have been: what is remembered of others does not hold for it. */
	__u32 version;
	__u32 reserved;
	/* Row of python_layouts plus one; 0 when it runs no Python. */
	__u32 python_layout;
	/* The variable that holds Python's state, and the type of its code objects. */
	__u64 python_runtime;
	__u64 python_code_type;
};

enum python_flags {
	/* The thread's frame is behind a structure on the C stack. */
	PYTHON_CFRAME = 1,
	/* The instruction is a 32-bit number, not an address. */
	PYTHON_INSTRUCTION_NUMBER = 2,
	/* Each frame has an evaluation loop of its own. */
	PYTHON_EACH_IS_ENTRY = 4,
	/* The frame's entry byte says whether it began an evaluation loop. */
	PYTHON_HAS_IS_ENTRY = 8,
	/* The frame's entry byte says who owns it: from PYTHON_OWNED_BY_LOOP on, the loop itself. */
	PYTHON_HAS_OWNER = 16,
	PYTHON_OWNED_BY_LOOP = 3,
};

/* Offsets in the objects of one version of Python, see python.rs of the stacks crate. */
struct python_layout {
	__u16 runtime_interpreters;
	__u16 interpreter_next;
	__u16 interpreter_threads;
	__u16 thread_next;
	__u16 thread_id;
	__u16 thread_frame;
	__u16 cframe_frame;
	__u16 frame_code;
	__u16 frame_previous;
	__u16 frame_instruction;
	__u16 frame_entry;
	/* How much of a frame, of a thread's state and of a code object has to be read. */
	__u16 frame_bytes;
	__u16 thread_bytes;
	__u16 code_bytes;
	__u16 object_type;
	__u16 code_filename;
	__u16 code_name;
	__u16 code_linetable;
	__u16 code_firstlineno;
	__u16 code_instructions;
	/* Of the name that is to be told. */
	__u16 code_qualname;
	/* Where the length of a string and of bytes lies, and how much comes before their contents, at most. */
	__u16 string_length;
	__u16 bytes_length;
	__u16 bytes_head;
	__u16 string_head;
	/* Bits of a pointer to an object that are not part of the address. */
	__u16 tag_mask;
	/* Of enum python_flags. */
	__u16 flags;
	__u16 reserved;
};

/* Where a value of a call is found, see Operand in the apis crate. */
enum operand_kind {
	OPERAND_NONE,
	OPERAND_CONST,
	OPERAND_ARG,
	OPERAND_ARG32,
	OPERAND_FIELD,
	OPERAND_FIELD32,
	OPERAND_OUT,
	OPERAND_OUT32,
	/* The constant has the size of each type, as a power of two in two bits. */
	OPERAND_SIZE_OF,
	OPERAND_HASH,
	OPERAND_HASH_AT,
	/* The constant is an enum known. */
	OPERAND_KNOWN,
};

/* What is known of the communicator that a call is about, see Known in the apis crate. */
enum known {
	KNOWN_ID,
	KNOWN_RANK,
	KNOWN_RANKS,
	KNOWN_SEQUENCE,
	KNOWN_GROUP,
	KNOWN_CHILD,
	/* What its handle was at entry; no row reads it. */
	KNOWN_HANDLE,
	KNOWN_FACTS = 8,
};

/* What a call does with a communicator, see Communicator in the apis crate. */
enum communicating {
	COMMUNICATES_NOT,
	COMMUNICATOR_CREATES,
	COMMUNICATOR_CREATES_ALL,
	COMMUNICATOR_SPLITS,
	COMMUNICATOR_COLLECTIVE,
	COMMUNICATOR_POINT_TO_POINT,
	COMMUNICATOR_ENDS,
	COMMUNICATOR_BEGINS_GROUP,
	COMMUNICATOR_ENDS_GROUP,
};

struct operand {
	__u8 kind;
	__u8 slot;
	__u16 offset;
	__u32 constant;
};

/* What a call does to its thread's device, see DeviceChange in the apis crate. */
enum device_change {
	DEVICE_KEEP,
	DEVICE_SELECT,
	DEVICE_SELECT_CONTEXT,
	DEVICE_BIND_CONTEXT,
	DEVICE_BIND_AND_SELECT,
	DEVICE_PUSH_CONTEXT,
	DEVICE_POP_CONTEXT,
};

/* What to do with a call, by row. */
struct api_spec {
	struct operand bytes[MAX_FACTORS];
	struct operand stream;
	struct operand address;
	struct operand handle;
	struct operand direction;
	struct operand device;
	/* Where the handle of the communicator is at entry. */
	struct operand communicator;
	/* What a new counter starts with, see there. */
	__u64 keep_min_ns;
	__u32 device_change;
	/* Whether there is any operand to read at entry besides stream and handle. */
	__u32 reads_more;
	/* Whether the call only tells the device of a thread for which it is not known; it is not counted. */
	__u32 learns;
	/* How many of its own_operands are read. */
	__u32 own_count;
	/* Whether it returns when the device has done its work, and whether it gives the device work. */
	__u32 waits;
	__u32 submits;
	/* An enum communicating. */
	__u32 communicating;
	__u32 reserved;
};

/* What a row reads that only calls of its library have. Apart from the rest: most rows read nothing of the kind. */
struct own_operands {
	struct operand operands[MAX_OWN];
};

/* Everything one thread did in one function; written by that thread alone, but for `keep_min_ns`. */
struct call_count {
	__u32 pid;
	__u32 tid;
	/* Row number plus one; 0 for a free slot. */
	__u32 api;
	/* How many execs the thread had behind it: what it counted before belongs to another program. */
	__u32 image;
	/* Calls at least this long get a record of their own: 0 for all, KEEP_NONE for none. Set by user space. */
	__u64 keep_min_ns;
	/* When a stack was last taken without a special reason. */
	__u64 stack_at_ns;
	__u64 thread_started_ns;
	__u64 count;
	__u64 sum_ns;
	__u64 runqueue_ns;
	__u64 blocked_ns;
	__u64 bytes;
	__u64 errors;
	/* By parity of the epoch, so that the reader sees a finished pair while the thread fills the other. */
	struct extremes {
		__u64 epoch;
		__u64 min_ns;
		__u64 max_ns;
	} extremes[2];
	__u32 buckets[HISTOGRAM];
};

enum record_kind {
	RECORD_CALL = 1,
	RECORD_THREAD = 2,
	RECORD_THREAD_EXIT = 3,
	RECORD_FORK = 4,
	RECORD_EXEC = 5,
	RECORD_EXIT = 6,
	RECORD_FILE = 7,
	RECORD_DETAILED_CALL = 8,
	RECORD_STRETCH = 9,
	RECORD_WORK = 10,
	RECORD_OOM_KILL = 11,
	RECORD_STACK = 12,
	RECORD_CODE = 13,
	RECORD_SAMPLE = 14,
	RECORD_CALL_WITH_OWN = 15,
	RECORD_TCP = 16,
};

/* The head of every record. `at_ns` is when it was written. */
struct record_head {
	__u32 kind;
	__u32 pid;
	__u64 at_ns;
};

struct task_id {
	__u32 pid;
	__u32 tid;
};

/* A finished call. Most have nothing more to tell: they did not wait, and move and allocate no memory. */
struct call_record {
	struct record_head head;
	__u32 tid;
	__u16 api;
	__u8 depth;
	__u8 direction;
	__u64 duration_ns;
	/* 0 when the call is outermost. */
	__u64 parent_start_ns;
	/* Where the call returns to. */
	__u64 caller;
	__u64 stream;
	__u64 handle;
	__s32 ret;
	__s16 device;
	/* Of the longest blocked stretch; WAIT_REASONS when there was none. */
	__u8 wait_reason;
	__u8 reserved;
	/* The hash of the stack at the return; 0 when none was taken. */
	__u64 stack;
};

struct call_details {
	__u64 runqueue_ns;
	__u64 blocked_ns;
	__u64 bytes;
	__u64 address;
	struct task_id woken_by;
	struct task_id preempted_by;
};

struct detailed_call {
	struct call_record call;
	struct call_details details;
};

/* A call with what only calls of its library have, in the order of its own_operands. */
struct call_with_own {
	struct call_record call;
	struct call_details details;
	__u64 own[MAX_OWN];
};

/* A thread is seen for the first time, as caller, waker or preempter. */
struct thread_record {
	struct record_head head;
	__u32 tid;
	__u32 reserved;
	__u64 cgroup_id;
	char comm[COMM_LENGTH];
};

/* A thread's clocks: where its time has gone since the first traced call. */
struct thread_clocks {
	__u64 since_ns;
	__u64 runqueue_ns;
	__u64 blocked_ns[WAIT_REASONS];
	__u64 in_calls_ns;
	__u64 in_calls_runqueue_ns;
	__u64 in_calls_blocked_ns;
	/* What was done to it besides counting calls: probes that were hit in vain, and switches that were timed. */
	__u64 skipped_hits;
	__u64 switches;
	/* The part of runqueue_ns in which the cgroup's quota was used up. */
	__u64 throttled_ns;
	__u64 work_ns[WORK_KINDS];
	/* Stacks that were walked on its time, and how long that took. */
	__u64 stacks;
	__u64 stacks_ns;
};

/* What a thread that makes calls has been in since some moment: its outermost call, or a wait outside of any. */
struct standing {
	/* 0 for nothing. */
	__u64 since_ns;
	/* Hash of the last stack that was taken since then; 0 for none. */
	__u64 stack;
	/* Row plus one of the call; 0 for none. */
	__u16 api;
	/* Of the function at entry, see struct row_state. */
	__u16 removals;
	/* What it blocks in; WAIT_REASONS while it does not. */
	__u32 wait_reason;
};

/* A thread's clocks as they stand: one for each watched thread from the iterator, and a last one at its exit. */
struct thread_snapshot {
	struct record_head head;
	__u32 tid;
	__u32 image;
	char comm[COMM_LENGTH];
	/* Since the thread began: page faults with and without a device, and time in the kernel, in ticks of it. */
	__u64 major_faults;
	__u64 minor_faults;
	__u64 system_ns;
	struct thread_clocks clocks;
	struct standing standing;
};

/* Something to wait on. */
struct wait_target {
	/* A futex's address, a file's inode, or the peer's IPv6 address (IPv4 in its mapped form). */
	__u64 name[2];
	/* The device a file lives on, or the one it is; a socket's own port. */
	__u32 device;
	/* The peer's. */
	__u16 port;
	/* An enum target_kind; TARGET_KINDS for none. */
	__u16 kind;
};

struct cpu_taker {
	struct task_id task;
	__u64 ns;
};

/* A request to a block device that is done. */
struct finished_io {
	__u64 at_ns;
	__u64 duration_ns;
	__u32 device;
	__u32 bytes;
	struct task_id issuer;
	__u32 is_write;
	__u32 reserved;
};

/*
 * A watched thread's time off the CPU: blocked, then runnable. Short stretches share a record: `all` is what has passed
 * since the thread's last one.
 */
struct stretch_record {
	struct record_head head;
	__u32 tid;
	/* Row plus one of the innermost call; 0 for none. */
	__u16 api;
	/* WAIT_REASONS when it was preempted. */
	__u8 wait_reason;
	__u8 throttled;
	__u64 blocked_ns;
	__u64 runqueue_ns;
	struct task_id woken_by;
	struct cpu_taker taken_by[TAKERS];
	struct wait_target target;
	__u64 all_blocked_ns;
	__u64 all_runqueue_ns;
	__u64 all_count;
	/* What ended a wait for a device, if that is known. */
	struct finished_io io;
	/* Hashes of the stacks where it left the CPU, and of whoever woke it; 0 when none was taken. */
	__u64 stack;
	__u64 waker_stack;
};

/* A span of kernel work, see above for `all`. */
struct work_record {
	struct record_head head;
	__u32 tid;
	__u16 api;
	__u8 kind;
	__u8 reserved;
	__u64 duration_ns;
	__u64 all_ns;
	__u32 all_count;
	/* The request number of an ioctl. */
	__u32 code;
	struct wait_target target;
};

/* What a process asked of a block device. */
struct io_key {
	__u32 device;
	__u32 pid;
};

struct io_sums {
	__u64 requests;
	__u64 bytes;
	__u64 busy_ns;
};

/* A fork, exec or exit of a process. */
struct life_record {
	struct record_head head;
	__u32 child_pid;
	__s32 status;
	/* Of an exec: the thread that called it, and the image it left. */
	__u32 old_tid;
	__u32 old_image;
	char comm[COMM_LENGTH];
};

/* A file became executable code of a process for the first time. */
struct file_record {
	struct record_head head;
	__u64 inode;
	__u32 device;
	__u32 generation;
};

/* A segment of a connection was sent again. Addresses are those of IPv6; IPv4 is mapped into it. */
struct tcp_record {
	struct record_head head;
	/* The number of the socket; 0 for one that no program has any more. */
	__u64 inode;
	__u64 own_address[2];
	__u64 address[2];
	__u16 own_port;
	__u16 port;
	__u32 round_trip_us;
};

/*
 * A stack that user space has not seen yet, or not for long. Its words are the kernel's frames, then Python's with two
 * words each, then the native ones, all from the innermost outwards. A frame of Python is its code object, then from
 * the lowest bit: 32 bits instruction, 31 bits fingerprint, 1 bit that says that it began an evaluation loop. One whose
 * words are 0 says the same of the frame before it.
 */
struct stack_record {
	struct record_head head;
	__u64 hash;
	__u32 tid;
	/* The process's, see struct walked_process. */
	__u32 identity;
	__u16 kernel_frames;
	__u16 python_frames;
	__u16 native_frames;
	/* An enum walk_end and an enum python_end. */
	__u8 end;
	__u8 python_end;
	__u64 words[STACK_WORDS];
};

/* A watched thread was running when the clock ticked. */
struct sample_record {
	struct record_head head;
	__u32 tid;
	__u32 reserved;
	__u64 stack;
};

enum code_part {
	CODE_HEAD,
	CODE_FILENAME,
	CODE_NAME,
	CODE_LINETABLE,
	CODE_PARTS,
};

/*
 * A code object of Python that user space has not seen yet, as it lies in memory: it may be gone before anybody has
 * looked at it. What could not be read has no bytes.
 */
struct code_record {
	struct record_head head;
	__u64 code;
	__u32 identity;
	__u32 fingerprint;
	__u64 addresses[CODE_PARTS];
	__u16 bytes[CODE_PARTS];
	__u8 code_head[CODE_HEAD_BYTES];
	__u8 filename[CODE_STRING_BYTES];
	__u8 name[CODE_STRING_BYTES];
	__u8 linetable[CODE_LINES_BYTES];
};

/* How many walks ended how, and how long they took. */
struct walk_counts {
	struct walk_count {
		__u64 count;
		__u64 ns;
	} ends[MOMENTS][WALK_ENDS][PYTHON_ENDS];
};

/* How much walking stacks may take, written by user space. */
struct stack_settings {
	/* Nanoseconds of walking for each 2^20 nanoseconds that pass. */
	__u32 allowance;
	/* Take every stack that can be taken. */
	__u32 take_all;
};

/* Names every type above once in a program's data, from which the skeleton takes them. */
struct wire_types {
	enum limits limits;
	enum cookie_bits cookie_bits;
	enum row_mode row_mode;
	enum wait_reason wait_reason;
	enum loss_reason loss_reason;
	enum operand_kind operand_kind;
	enum known known;
	enum communicating communicating;
	enum device_change device_change;
	enum record_kind record_kind;
	struct api_spec api_spec;
	struct call_count call_count;
	struct own_operands own_operands;
	struct call_with_own call;
	struct detailed_call detailed_call;
	struct thread_record thread;
	struct thread_snapshot snapshot;
	struct life_record life;
	struct file_record file;
	struct tcp_record tcp;
	enum target_kind target_kind;
	enum work_kind work_kind;
	struct stretch_record stretch;
	struct work_record work;
	struct io_key io_key;
	struct io_sums io_sums;
	struct code_mapping code_mapping;
	struct walked_process walked_process;
	struct stack_record stack;
	struct code_record code;
	struct sample_record sample;
	struct walk_counts walk_counts;
	struct stack_settings stack_settings;
	struct unwind_row unwind_row;
	enum stack_moment stack_moment;
	enum walk_end walk_end;
	enum python_end python_end;
	enum rule_kind rule_kind;
	enum bp_rule bp_rule;
	enum mapping_flags mapping_flags;
	enum python_flags python_flags;
	enum code_part code_part;
	struct python_layout python_layout;
};

#pragma clang diagnostic pop
#endif
