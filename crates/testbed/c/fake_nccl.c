// SPDX-License-Identifier: Apache-2.0
//
// A libnccl without a GPU. Ranks are real processes that meet in shared memory: making and splitting a communicator
// waits for all of them. Operations move nothing and return at once, as those of the real library do. They are done
// when all ranks have come to the same one.
#include "fake_nccl.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST_RANKS 64
#define MOST_SPLITS 64
#define PATIENCE_MS 60000

// What the ranks of a communicator have in common.
struct meeting {
    uint32_t joined;
    uint32_t left;
    /* From this operation on, if there is one, nobody comes out any more. */
    uint32_t broken_from;
    /* Operations that the GPU of each rank has come to, and what the last of them was. */
    uint32_t come_to[MOST_RANKS];
    uint64_t last[MOST_RANKS];
    struct {
        uint32_t arrived;
        int color[MOST_RANKS];
        int key[MOST_RANKS];
    } splits[MOST_SPLITS];
};

struct fake_comm {
    char name[160];
    int rank;
    int nranks;
    uint32_t splits;
    /* Operations that this rank has asked for, and what the last of them was. */
    uint32_t asked_for;
    uint64_t last;
    /* Operations that a launch of the graph asks for. */
    uint32_t captured;
    /* From this operation on, if there is one, this rank does not come out any more. */
    uint32_t stuck_from;
    /* Nobody waits in it any more. */
    int is_aborted;
    struct meeting *meeting;
    struct fake_comm *next;
};

// Those of this process that have a meeting.
static struct fake_comm *comms;

// Whether operations are recorded in a graph. There is one of them.
static int is_capturing;

static int wait_for(const uint32_t *count, uint32_t wanted)
{
    const struct timespec moment = {.tv_nsec = 200000};

    for (int waited = 0; waited < PATIENCE_MS * 5; waited++) {
        if (__atomic_load_n(count, __ATOMIC_ACQUIRE) >= wanted)
            return 0;
        nanosleep(&moment, NULL);
    }
    return -1;
}

static ncclResult_t join(ncclComm_t *made, const char *name, int rank, int nranks)
{
    struct fake_comm *comm = calloc(1, sizeof(*comm));
    int fd = shm_open(name, O_RDWR | O_CREAT, 0600);

    if (!comm || fd < 0 || nranks > MOST_RANKS || ftruncate(fd, sizeof(*comm->meeting)))
        return ncclSystemError;
    comm->meeting = mmap(NULL, sizeof(*comm->meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (comm->meeting == MAP_FAILED)
        return ncclSystemError;
    snprintf(comm->name, sizeof(comm->name), "%s", name);
    comm->rank = rank;
    comm->nranks = nranks;
    comm->next = comms;
    comms = comm;
    *made = comm;
    __atomic_add_fetch(&comm->meeting->joined, 1, __ATOMIC_RELEASE);
    return wait_for(&comm->meeting->joined, nranks) ? ncclSystemError : ncclSuccess;
}

static ncclResult_t join_by_id(ncclComm_t *made, const ncclUniqueId *id, int rank, int nranks)
{
    char name[64];
    uint64_t words[2];

    memcpy(words, id->internal, sizeof(words));
    snprintf(name, sizeof(name), "/fake-nccl-%016lx%016lx", (unsigned long)words[0], (unsigned long)words[1]);
    return join(made, name, rank, nranks);
}

EXPORT ncclResult_t ncclGetVersion(int *version)
{
    *version = 22800;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    return getrandom(id, sizeof(*id), 0) == sizeof(*id) ? ncclSuccess : ncclSystemError;
}

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    return join_by_id(comm, &id, rank, nranks);
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                           ncclConfig_t *config)
{
    (void)config;
    return join_by_id(comm, &id, rank, nranks);
}

EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int ids, ncclUniqueId *id,
                                             ncclConfig_t *config)
{
    (void)config;
    return ids < 1 ? ncclInvalidArgument : join_by_id(comm, id, rank, nranks);
}

// One process is all ranks: nobody has to be waited for.
EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comms, int devices, const int *list)
{
    (void)list;
    for (int rank = 0; rank < devices; rank++) {
        comms[rank] = calloc(1, sizeof(*comms[rank]));
        if (!comms[rank])
            return ncclSystemError;
        comms[rank]->rank = rank;
        comms[rank]->nranks = devices;
    }
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config)
{
    uint32_t split = comm->splits++;
    int rank = 0, nranks = 0;
    char name[256];

    (void)config;
    *made = NULL;
    if (split >= MOST_SPLITS || !comm->meeting)
        return ncclInvalidArgument;
    comm->meeting->splits[split].color[comm->rank] = color;
    comm->meeting->splits[split].key[comm->rank] = key;
    __atomic_add_fetch(&comm->meeting->splits[split].arrived, 1, __ATOMIC_RELEASE);
    if (wait_for(&comm->meeting->splits[split].arrived, comm->nranks))
        return ncclSystemError;
    if (color < 0)
        return ncclSuccess;
    for (int other = 0; other < comm->nranks; other++) {
        int its_key = comm->meeting->splits[split].key[other];

        if (comm->meeting->splits[split].color[other] != color)
            continue;
        nranks++;
        rank += its_key < key || (its_key == key && other < comm->rank);
    }
    snprintf(name, sizeof(name), "%.120s-%u-%d", comm->name, split, color);
    return join(made, name, rank, nranks);
}

// Those who are left out are not waited for.
EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int count, ncclComm_t *made, ncclConfig_t *config,
                                   int flags)
{
    uint32_t split = comm->splits++;
    int rank = comm->rank;
    char name[256];

    (void)config;
    (void)flags;
    *made = NULL;
    for (int at = 0; at < count; at++)
        rank -= excluded[at] < comm->rank;
    snprintf(name, sizeof(name), "%.120s-%u-shrunk", comm->name, split);
    return join(made, name, rank, comm->nranks - count);
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}

static void forget(const struct fake_comm *comm)
{
    struct fake_comm **at = &comms;

    while (*at && *at != comm)
        at = &(*at)->next;
    if (*at)
        *at = comm->next;
}

// The last one to leave takes the meeting place away.
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    forget(comm);
    if (comm->meeting && __atomic_add_fetch(&comm->meeting->left, 1, __ATOMIC_ACQ_REL) == (uint32_t)comm->nranks)
        shm_unlink(comm->name);
    if (comm->meeting)
        munmap(comm->meeting, sizeof(*comm->meeting));
    free(comm);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    // It stays where it is: another thread may wait in it.
    __atomic_store_n(&comm->is_aborted, 1, __ATOMIC_RELEASE);
    forget(comm);
    if (comm->meeting)
        shm_unlink(comm->name);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    (void)comm;
    *error = ncclSuccess;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommCount(ncclComm_t comm, int *count)
{
    *count = comm->nranks;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

enum kind {
    ALL_REDUCE = 1,
    ALL_GATHER,
    REDUCE_SCATTER,
    BROADCAST,
    REDUCE,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    SEND_OR_RECEIVE
};

// Called, so that whoever calls it begins with a push, as the functions of the real library do.
__attribute__((noinline)) static ncclResult_t enqueue(ncclComm_t comm, enum kind kind, size_t count,
                                                      ncclDataType_t type)
{
    if (is_capturing)
        comm->captured++;
    else
        comm->asked_for++;
    comm->last = kind == SEND_OR_RECEIVE ? 0 : (uint64_t)kind << 56 | (uint64_t)type << 48 | count;
    return ncclSuccess;
}

// Whether a rank is in the same place and has asked for something else there.
static int is_elsewhere(const struct fake_comm *comm, int rank)
{
    const struct meeting *meeting = comm->meeting;
    uint64_t its_last = __atomic_load_n(&meeting->last[rank], __ATOMIC_ACQUIRE);
    uint32_t come_to = __atomic_load_n(&meeting->come_to[rank], __ATOMIC_ACQUIRE);

    return come_to == comm->asked_for && its_last && comm->last && its_last != comm->last;
}

static int is_done(const struct fake_comm *comm)
{
    uint32_t broken_from = __atomic_load_n(&comm->meeting->broken_from, __ATOMIC_ACQUIRE);

    if (__atomic_load_n(&comm->is_aborted, __ATOMIC_ACQUIRE))
        return 1;
    if ((comm->stuck_from && comm->asked_for >= comm->stuck_from) || (broken_from && comm->asked_for >= broken_from))
        return 0;
    for (int rank = 0; rank < comm->nranks; rank++)
        if (__atomic_load_n(&comm->meeting->come_to[rank], __ATOMIC_ACQUIRE) < comm->asked_for ||
            is_elsewhere(comm, rank))
            return 0;
    return 1;
}

// The GPU of this rank has come to what was asked for. It is done with that when all others have come as far.
EXPORT int fake_nccl_wait(ncclComm_t comm)
{
    const struct timespec moment = {.tv_nsec = 200000};

    __atomic_store_n(&comm->meeting->last[comm->rank], comm->last, __ATOMIC_RELEASE);
    __atomic_store_n(&comm->meeting->come_to[comm->rank], comm->asked_for, __ATOMIC_RELEASE);
    for (int waited = 0; waited < PATIENCE_MS * 5; waited++) {
        if (is_done(comm))
            return 0;
        nanosleep(&moment, NULL);
    }
    return -1;
}

EXPORT void fake_nccl_wait_for_all(const char *symbol)
{
    (void)symbol;
    for (struct fake_comm *comm = comms; comm; comm = comm->next)
        fake_nccl_wait(comm);
}

static int is_call_of(const char *symbol, const char *function)
{
    return strncmp(symbol, function, strlen(function)) == 0;
}

EXPORT void fake_nccl_in_graph(const char *symbol)
{
    if (is_call_of(symbol, "cuStreamBeginCapture"))
        is_capturing = 1;
    else if (is_call_of(symbol, "cuStreamEndCapture"))
        is_capturing = 0;
    else if (is_call_of(symbol, "cuGraphLaunch"))
        for (struct fake_comm *comm = comms; comm; comm = comm->next)
            comm->asked_for += comm->captured;
    else
        fake_nccl_wait_for_all(symbol);
}

EXPORT void fake_nccl_break(ncclComm_t comm, int for_all)
{
    comm->stuck_from = comm->asked_for + 1;
    if (for_all)
        __atomic_store_n(&comm->meeting->broken_from, comm->stuck_from, __ATOMIC_RELEASE);
}

#pragma GCC diagnostic ignored "-Wunused-parameter"
EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                  ncclComm_t comm, cudaStream_t stream)
{
    return enqueue(comm, ALL_REDUCE, count, type);
}

EXPORT ncclResult_t ncclAllReduceConfig(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                        ncclComm_t comm, cudaStream_t stream, const void *config)
{
    return enqueue(comm, ALL_REDUCE, count, type);
}

EXPORT ncclResult_t ncclBroadcastConfig(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                                        ncclComm_t comm, cudaStream_t stream, const void *config)
{
    return enqueue(comm, BROADCAST, count, type);
}

EXPORT ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                                  cudaStream_t stream)
{
    return enqueue(comm, ALL_GATHER, count, type);
}

EXPORT ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                      ncclComm_t comm, cudaStream_t stream)
{
    return enqueue(comm, REDUCE_SCATTER, count, type);
}

EXPORT ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                                  ncclComm_t comm, cudaStream_t stream)
{
    return enqueue(comm, BROADCAST, count, type);
}

EXPORT ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                              cudaStream_t stream)
{
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

EXPORT ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                               ncclComm_t comm, cudaStream_t stream)
{
    return enqueue(comm, REDUCE, count, type);
}

EXPORT ncclResult_t ncclAlltoAll(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                                 cudaStream_t stream)
{
    return enqueue(comm, ALL_TO_ALL, count, type);
}

EXPORT ncclResult_t ncclGather(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                               cudaStream_t stream)
{
    return enqueue(comm, GATHER, count, type);
}

EXPORT ncclResult_t ncclScatter(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                                ncclComm_t comm, cudaStream_t stream)
{
    return enqueue(comm, SCATTER, count, type);
}

EXPORT ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream)
{
    return enqueue(comm, SEND_OR_RECEIVE, count, type);
}

EXPORT ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream)
{
    return enqueue(comm, SEND_OR_RECEIVE, count, type);
}

EXPORT ncclResult_t ncclGroupStart(void)
{
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void)
{
    return ncclSuccess;
}
