/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Segments that are sent again. A timer or an acknowledgement is the reason as a rule, so whoever runs at that moment
 * has nothing to do with it: the socket's own number says whose it is.
 */
#include "shared.bpf.h"

static __always_inline void read_addresses(struct tcp_record *record, struct sock *sock)
{
	record->own_port = BPF_CORE_READ(sock, __sk_common.skc_num);
	record->port = bpf_ntohs(BPF_CORE_READ(sock, __sk_common.skc_dport));
	if (BPF_CORE_READ(sock, __sk_common.skc_family) == FAMILY_INET6) {
		BPF_CORE_READ_INTO(&record->own_address, sock, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&record->address, sock, __sk_common.skc_v6_daddr);
		return;
	}
	record->own_address[0] = 0;
	record->own_address[1] = (__u64)BPF_CORE_READ(sock, __sk_common.skc_rcv_saddr) << 32 | 0xffff0000;
	record->address[0] = 0;
	record->address[1] = (__u64)BPF_CORE_READ(sock, __sk_common.skc_daddr) << 32 | 0xffff0000;
}

/*
 * Whether the other end had most of what was sent again, as it says itself. Whoever delays its acknowledgements,
 * because nobody reads there, is asked this way whether something was lost.
 */
static __always_inline bool is_needless(struct tcp_sock *sock)
{
	__u32 all = BPF_CORE_READ(sock, total_retrans);

	return all > 3 && 4 * BPF_CORE_READ(sock, dsack_dups) >= 3 * (all - 1);
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(retransmit, struct sock *sock)
{
	struct tcp_record *record;

	if (is_needless((struct tcp_sock *)sock))
		return 0;
	record = ring_reserve(sizeof(*record), LOSS_WAIT_RING_FULL);
	if (!record)
		return 0;
	fill_head(&record->head, RECORD_TCP, 0, bpf_ktime_get_ns());
	record->inode = BPF_CORE_READ(sock, sk_socket, file, f_inode, i_ino);
	/* The kernel keeps it times eight. */
	record->round_trip_us = BPF_CORE_READ((struct tcp_sock *)sock, srtt_us) >> 3;
	read_addresses(record, sock);
	ring_submit(record);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
