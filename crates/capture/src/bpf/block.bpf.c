/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Requests to block devices: how long each took, who issued it, and which one a waiting thread was woken by. */
#include "shared.bpf.h"

struct request_state {
	__u64 first_seen_ns;
	/* When it was handed to the device last; 0 while it is queued. */
	__u64 issued_ns;
	/* Who asked for it: a device that is busy gets it again later, from a thread of the kernel. */
	struct task_id issuer;
};

/* Requests that are merged into others never complete; what is known of one this old is not about the one there now. */
#define STALE_NS 1000000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct request_state);
} requests SEC(".maps");

/* Who uses which device how much; read by user space while a watched thread waits for one. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct io_key);
	__type(value, struct io_sums);
} io_usage SEC(".maps");

/* `issued_ns` is 0 for one that is queued. */
static __always_inline void see_request(struct request *request, __u64 now, __u64 issued_ns)
{
	struct request_state first = {
	    .first_seen_ns = now,
	    .issued_ns = issued_ns,
	    .issuer = task_id(bpf_get_current_task_btf()),
	};
	__u64 key = (__u64)request;
	struct request_state *state = bpf_map_lookup_elem(&requests, &key);

	if (state && now - state->first_seen_ns < STALE_NS)
		state->issued_ns = issued_ns;
	else
		bpf_map_update_elem(&requests, &key, &first, BPF_ANY);
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(rq_insert, struct request *request)
{
	see_request(request, bpf_ktime_get_ns(), 0);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(rq_issue, struct request *request)
{
	__u64 now = bpf_ktime_get_ns();

	see_request(request, now, now);
	return 0;
}

static __always_inline void add_usage(const struct finished_io *io)
{
	struct io_key key = {.device = io->device, .pid = io->issuer.pid};
	struct io_sums first = {.requests = 1, .bytes = io->bytes, .busy_ns = io->duration_ns};
	struct io_sums *sums = bpf_map_lookup_elem(&io_usage, &key);

	if (!sums) {
		bpf_map_update_elem(&io_usage, &key, &first, BPF_NOEXIST);
		return;
	}
	__sync_fetch_and_add(&sums->requests, 1);
	__sync_fetch_and_add(&sums->bytes, io->bytes);
	__sync_fetch_and_add(&sums->busy_ns, io->duration_ns);
}

/* Whoever waits for the request is woken from within its completion, on this CPU and before the next one's. */
SEC("tp_btf/block_rq_complete")
int BPF_PROG(rq_complete, struct request *request, int error, unsigned int bytes)
{
	__u64 key = (__u64)request, now = bpf_ktime_get_ns();
	struct request_state *state = bpf_map_lookup_elem(&requests, &key);
	struct gendisk *disk = BPF_CORE_READ(request, q, disk);
	struct finished_io *io;
	__u32 zero = 0;

	io = bpf_map_lookup_elem(&completions, &zero);
	if (!state || !state->issued_ns || !io)
		return 0;
	io->at_ns = now;
	io->duration_ns = now - state->issued_ns;
	io->device = BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor);
	io->bytes = bytes;
	io->issuer = state->issuer;
	io->is_write = BPF_CORE_READ(request, cmd_flags) & 1;
	add_usage(io);
	bpf_map_delete_elem(&requests, &key);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
