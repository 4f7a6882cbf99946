/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Memory that runs short: watched threads that have to free or move some themselves, and processes killed for it. */
#include "work.bpf.h"

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int reclaim_begin(void *ctx)
{
	begin_work(WORK_RECLAIM, 0);
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int reclaim_end(void *ctx)
{
	end_work(WORK_RECLAIM);
	return 0;
}

/* Under the limit of a cgroup. */
SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int cgroup_reclaim_begin(void *ctx)
{
	begin_work(WORK_RECLAIM, 0);
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int cgroup_reclaim_end(void *ctx)
{
	end_work(WORK_RECLAIM);
	return 0;
}

SEC("tp_btf/mm_compaction_begin")
int compact_begin(void *ctx)
{
	begin_work(WORK_COMPACTION, 0);
	return 0;
}

SEC("tp_btf/mm_compaction_end")
int compact_end(void *ctx)
{
	end_work(WORK_COMPACTION);
	return 0;
}

/* Not a tp_btf, because its arguments differ between kernels. */
SEC("tracepoint/oom/mark_victim")
int oom_kill(struct trace_event_raw_mark_victim *ctx)
{
	struct life_record *record = ring_reserve(sizeof(*record), LOSS_LIFE_RING_FULL);

	if (!record)
		return 0;
	__builtin_memset(record, 0, sizeof(*record));
	fill_head(&record->head, RECORD_OOM_KILL, ctx->pid, bpf_ktime_get_ns());
	ring_submit_urgent(record);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
