// SPDX-License-Identifier: Apache-2.0
//
// A job of several ranks, each a process of its own: communicators made in every way, split and ended, and every
// operation on each of them. Prints a line of JSON for each operation: what it was, and what a rank knows of itself.
//
//     ranks RANKS ROUNDS [GATE] [LATE_MS] [STOPS_AT]
//
// With a gate, each rank says by a file of that name and its number that its communicators are made, and goes on when
// there is a file of that name. The last rank of the first communicator is late in each round, if it is to be; ranks
// then wait for each other at the end of it. The rank before that one stops before the round STOPS_AT, if there is one.
#include "fake_nccl.h"

#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNKNOWN (-1)
#define LENGTH(list) (sizeof(list) / sizeof(*(list)))

static const char *const TYPES[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
                                    "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
static const size_t SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
static const char *const REDUCTIONS[] = {"sum", "prod", "max", "min", "avg"};

// A communicator, and what is true of it.
struct known {
    ncclComm_t comm;
    uint64_t id;
    int rank;
    int nranks;
    int seq;
    int children;
};

static uint64_t mixed(uint64_t value)
{
    value += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

static uint64_t hash_of(const ncclUniqueId *id)
{
    uint64_t hash = 0, word;

    for (size_t at = 0; at < sizeof(*id); at += sizeof(word)) {
        memcpy(&word, id->internal + at, sizeof(word));
        hash = mixed(hash ^ word);
    }
    return hash;
}

static void must(ncclResult_t result, const char *what)
{
    if (result == ncclSuccess)
        return;
    fprintf(stderr, "%s: %d\n", what, result);
    exit(1);
}

// One write for each line: ranks share the pipe.
static void tell(struct known *on, const char *op, size_t count, int type, int reduction, int peer, uintptr_t stream,
                 int group, int seq)
{
    char line[512];
    int length =
        snprintf(line, sizeof(line),
                 "{\"pid\":%d,\"op\":\"%s\",\"comm\":%" PRId64
                 ",\"rank\":%d,\"nranks\":%d,\"seq\":%d,\"bytes\":%zu,\"datatype\":\"%s\",\"reduce_op\":\"%s\","
                 "\"peer\":%d,\"stream\":%zu,\"group\":%d}\n",
                 getpid(), op, (int64_t)on->id, on->rank, on->nranks, seq, count * SIZES[type], TYPES[type],
                 reduction < 0 ? "" : REDUCTIONS[reduction], peer, (size_t)stream, group);

    if (write(STDOUT_FILENO, line, length) != length)
        exit(1);
}

static void operate(struct known *on, int number, int *group)
{
    char buffer[8] = {0};
    size_t count = 1000 + 17 * number;
    ncclDataType_t type = number % LENGTH(TYPES);
    ncclRedOp_t op = number % LENGTH(REDUCTIONS);
    uintptr_t handle = 0x1000 + number % 3;
    cudaStream_t stream = (cudaStream_t)handle;
    int root = number % on->nranks;
    int next = (on->rank + 1) % on->nranks, before = (on->rank + on->nranks - 1) % on->nranks;

    switch (number % 10) {
    case 0:
        if (number % 20)
            must(ncclAllReduceConfig(buffer, buffer, count, type, op, on->comm, stream, NULL), "ncclAllReduceConfig");
        else
            must(ncclAllReduce(buffer, buffer, count, type, op, on->comm, stream), "ncclAllReduce");
        return tell(on, "ALL_REDUCE", count, type, op, UNKNOWN, handle, UNKNOWN, on->seq++);
    case 1:
        must(ncclAllGather(buffer, buffer, count, type, on->comm, stream), "ncclAllGather");
        return tell(on, "ALL_GATHER", count, type, UNKNOWN, UNKNOWN, handle, UNKNOWN, on->seq++);
    case 2:
        must(ncclReduceScatter(buffer, buffer, count, type, op, on->comm, stream), "ncclReduceScatter");
        return tell(on, "REDUCE_SCATTER", count, type, op, UNKNOWN, handle, UNKNOWN, on->seq++);
    case 3:
        if (number % 20 == 3)
            must(ncclBroadcastConfig(buffer, buffer, count, type, root, on->comm, stream, NULL), "ncclBroadcastConfig");
        else
            must(ncclBroadcast(buffer, buffer, count, type, root, on->comm, stream), "ncclBroadcast");
        return tell(on, "BROADCAST", count, type, UNKNOWN, root, handle, UNKNOWN, on->seq++);
    case 4:
        must(ncclBcast(buffer, count, type, root, on->comm, stream), "ncclBcast");
        return tell(on, "BROADCAST", count, type, UNKNOWN, root, handle, UNKNOWN, on->seq++);
    case 5:
        must(ncclReduce(buffer, buffer, count, type, op, root, on->comm, stream), "ncclReduce");
        return tell(on, "REDUCE", count, type, op, root, handle, UNKNOWN, on->seq++);
    case 6:
        must(ncclAlltoAll(buffer, buffer, count, type, on->comm, stream), "ncclAlltoAll");
        return tell(on, "ALL_TO_ALL", count, type, UNKNOWN, UNKNOWN, handle, UNKNOWN, on->seq++);
    case 7:
        must(ncclGather(buffer, buffer, count, type, root, on->comm, stream), "ncclGather");
        return tell(on, "GATHER", count, type, UNKNOWN, root, handle, UNKNOWN, on->seq++);
    case 8:
        must(ncclScatter(buffer, buffer, count, type, root, on->comm, stream), "ncclScatter");
        return tell(on, "SCATTER", count, type, UNKNOWN, root, handle, UNKNOWN, on->seq++);
    default:
        *group += 1;
        must(ncclGroupStart(), "ncclGroupStart");
        must(ncclSend(buffer, count, type, next, on->comm, stream), "ncclSend");
        tell(on, "SEND", count, type, UNKNOWN, next, handle, *group, UNKNOWN);
        must(ncclRecv(buffer, count, type, before, on->comm, stream), "ncclRecv");
        tell(on, "RECV", count, type, UNKNOWN, before, handle, *group, UNKNOWN);
        must(ncclGroupEnd(), "ncclGroupEnd");
    }
}

static struct known split(struct known *parent, int color, int key)
{
    struct known made = {.id = mixed(mixed(parent->id ^ (uint64_t)parent->children++) ^ (uint32_t)color)};

    must(ncclCommSplit(parent->comm, color, key, &made.comm, NULL), "ncclCommSplit");
    ncclCommUserRank(made.comm, &made.rank);
    ncclCommCount(made.comm, &made.nranks);
    return made;
}

// Without the last rank.
static struct known shrink(struct known *parent)
{
    struct known made = {.id = mixed(mixed(parent->id ^ (uint64_t)parent->children++) ^ 1)};
    int last = parent->nranks - 1;

    must(ncclCommShrink(parent->comm, &last, 1, &made.comm, NULL, 0), "ncclCommShrink");
    ncclCommUserRank(made.comm, &made.rank);
    ncclCommCount(made.comm, &made.nranks);
    return made;
}

static void wait_at(const char *gate, int rank)
{
    char made[4096];
    FILE *file;

    snprintf(made, sizeof(made), "%s.%d", gate, rank);
    file = fopen(made, "w");
    if (!file || fclose(file))
        exit(1);
    while (access(gate, F_OK))
        usleep(1000);
}

static int be_rank(int rank, int nranks, int rounds, ncclUniqueId ids[4], const char *gate, int late_ms, int stops_at)
{
    struct known on[5] = {
        {.id = hash_of(&ids[0]), .rank = rank, .nranks = nranks},
        {.id = hash_of(&ids[1]), .rank = nranks - 1 - rank, .nranks = nranks},
        {.id = hash_of(&ids[2]), .rank = rank, .nranks = nranks},
    };
    struct known again = {.id = hash_of(&ids[3]), .rank = rank, .nranks = nranks};
    int group = 0;

    must(ncclCommInitRank(&on[0].comm, nranks, ids[0], rank), "ncclCommInitRank");
    must(ncclCommInitRankConfig(&on[1].comm, nranks, ids[1], nranks - 1 - rank, NULL), "ncclCommInitRankConfig");
    must(ncclCommInitRankScalable(&on[2].comm, nranks, rank, 1, &ids[2], NULL), "ncclCommInitRankScalable");
    on[3] = split(&on[0], rank % 2, -rank);
    on[4] = split(&on[0], 7, rank);
    if (*gate)
        wait_at(gate, rank);
    for (int number = 0; number < rounds; number++) {
        if (late_ms && rank == nranks - 1)
            usleep(1000 * late_ms);
        if (stops_at && number == stops_at && rank == nranks - 2)
            raise(SIGSTOP);
        for (size_t at = 0; at < LENGTH(on); at++)
            operate(&on[at], number, &group);
        for (size_t at = 0; late_ms && at < LENGTH(on); at++)
            must(fake_nccl_wait(on[at].comm) ? ncclSystemError : ncclSuccess, "fake_nccl_wait");
    }
    // Nobody has waited for what was asked of them.
    for (size_t at = 0; at < LENGTH(on); at++)
        must((at % 2 ? ncclCommAbort : ncclCommDestroy)(on[at].comm), "ncclCommAbort or ncclCommDestroy");
    // The handle may be that of one that was ended.
    must(ncclCommInitRank(&again.comm, nranks, ids[3], rank), "ncclCommInitRank");
    operate(&again, 0, &group);
    if (rank < nranks - 1) {
        struct known fewer = shrink(&again);

        operate(&fewer, 0, &group);
        must(ncclCommDestroy(fewer.comm), "ncclCommDestroy");
    }
    must(ncclCommDestroy(again.comm), "ncclCommDestroy");
    return 0;
}

int main(int argc, char **argv)
{
    int nranks = argc > 1 ? atoi(argv[1]) : 2, rounds = argc > 2 ? atoi(argv[2]) : 10, failed = 0, status;
    ncclUniqueId ids[4];

    for (size_t at = 0; at < LENGTH(ids); at++)
        must(ncclGetUniqueId(&ids[at]), "ncclGetUniqueId");
    for (int rank = 0; rank < nranks; rank++) {
        switch (fork()) {
        case -1:
            perror("fork");
            return 1;
        case 0:
            return be_rank(rank, nranks, rounds, ids, argc > 3 ? argv[3] : "", argc > 4 ? atoi(argv[4]) : 0,
                           argc > 5 ? atoi(argv[5]) : 0);
        }
    }
    while (wait(&status) > 0)
        failed += status != 0;
    return failed != 0;
}
