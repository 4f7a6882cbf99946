/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The groups of ranks that operations of several devices work in. Calls name one by a handle of their process; what all
 * ranks have in common, and which of them this is, is seen when it is made and kept here.
 */
#ifndef GPUWHY_COMMUNICATORS_BPF_H
#define GPUWHY_COMMUNICATORS_BPF_H

#include "shared.bpf.h"

/* What is not known, of all that is told of a communicator. */
#define UNKNOWN (~0ULL)

/* A communicator's unique id, and how many of a process's own are made at once. */
#define ID_WORDS   16
#define MOST_OF_IT 64

struct communicator_key {
	__u64 handle;
	__u64 pid;
};

struct communicator {
	__u64 id;
	__u64 rank;
	__u64 ranks;
	/* Collective operations so far, and communicators that were made out of it. */
	__u64 sequence;
	__u64 children;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct communicator_key);
	__type(value, struct communicator);
} communicators SEC(".maps");

/* splitmix64 */
static __always_inline __u64 folded(__u64 value)
{
	value += 0x9e3779b97f4a7c15ULL;
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ULL;
	value = (value ^ value >> 27) * 0x94d049bb133111ebULL;
	return value ^ value >> 31;
}

/* Of the unique id that lies at an address of the current process. */
static __noinline __u64 hash_at(__u64 address)
{
	__u64 hash = 0;

	for (int i = 0; i < ID_WORDS; i++) {
		__u64 word = 0;

		if (bpf_probe_read_user(&word, sizeof(word), (void *)(address + 8 * i)))
			return UNKNOWN;
		hash = folded(hash ^ word);
	}
	return hash;
}

static __always_inline struct communicator_key communicator_key(__u64 handle)
{
	struct communicator_key key = {.handle = handle, .pid = bpf_get_current_pid_tgid() >> 32};

	return key;
}

static __always_inline void note_group(struct thread_state *thread, __u32 communicating)
{
	if (communicating == COMMUNICATOR_BEGINS_GROUP && !thread->group_depth++)
		thread->group++;
	if (communicating == COMMUNICATOR_ENDS_GROUP && thread->group_depth)
		thread->group_depth--;
}

/* At entry: what is known of the communicator that the call is about. */
static __noinline int recall_communicator(struct thread_state *thread, __u32 communicating, __u64 handle)
{
	struct communicator_key key = communicator_key(handle);
	struct communicator *found = bpf_map_lookup_elem(&communicators, &key);
	__u64 sequence = UNKNOWN;

	if (!thread)
		return 0;
	if (found && communicating == COMMUNICATOR_COLLECTIVE)
		sequence = __sync_fetch_and_add(&found->sequence, 1);
	else if (found && communicating == COMMUNICATOR_SPLITS)
		sequence = __sync_fetch_and_add(&found->children, 1);
	thread->known[KNOWN_ID] = found ? found->id : UNKNOWN;
	thread->known[KNOWN_RANK] = found ? found->rank : UNKNOWN;
	thread->known[KNOWN_RANKS] = found ? found->ranks : UNKNOWN;
	thread->known[KNOWN_SEQUENCE] = sequence;
	thread->known[KNOWN_GROUP] = thread->group_depth ? thread->group : UNKNOWN;
	thread->known[KNOWN_CHILD] = UNKNOWN;
	thread->known[KNOWN_HANDLE] = handle;
	/* From now on the handle may be that of another. */
	if (communicating == COMMUNICATOR_ENDS)
		bpf_map_delete_elem(&communicators, &key);
	return 0;
}

static __always_inline void keep(struct communicator_key *key, __u64 id, __u64 rank, __u64 ranks)
{
	struct communicator made = {.id = id, .rank = rank, .ranks = ranks};

	if (key->handle)
		bpf_map_update_elem(&communicators, key, &made, BPF_ANY);
}

/* All ranks are in this process. Nobody else has to know the id. */
static __always_inline void keep_all(__u64 list, __u64 ranks)
{
	__u64 id = folded(folded(bpf_get_current_pid_tgid() >> 32 ^ list) ^ bpf_ktime_get_ns());

	for (__u64 i = 0; i < MOST_OF_IT && i < ranks; i++) {
		struct communicator_key key = communicator_key(0);

		bpf_probe_read_user(&key.handle, sizeof(key.handle), (void *)(list + 8 * i));
		keep(&key, id, i, ranks);
	}
}

/*
 * At return, when the thread's depth is that of the call: what has been made. What the function returned does not
 * matter: it may say that the work goes on in the background.
 */
static __noinline int keep_communicator(struct thread_state *thread, __u32 communicating, __u64 handle)
{
	struct communicator_key key = communicator_key(handle);
	__u64 *own;

	if (!thread)
		return 0;
	own = thread->own[MASKED(thread->depth, MAX_DEPTH)];
	if (communicating == COMMUNICATOR_CREATES) {
		keep(&key, own[0], own[1], own[2]);
	} else if (communicating == COMMUNICATOR_CREATES_ALL) {
		keep_all(thread->known[KNOWN_HANDLE], own[0]);
	} else if (communicating == COMMUNICATOR_SPLITS) {
		/* Ranks split it in the same order. Which rank this is in the new one depends on what all of them said:
		   a color, or how many are left out. */
		if (own[0] != UNKNOWN && handle)
			own[3] = folded(folded(own[0] ^ thread->known[KNOWN_SEQUENCE]) ^ (__u32)own[4]);
		keep(&key, own[3], UNKNOWN, UNKNOWN);
	}
	return 0;
}

#endif
