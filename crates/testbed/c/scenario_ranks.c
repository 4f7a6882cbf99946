// SPDX-License-Identifier: Apache-2.0
//
// A job of two ranks that reduce their gradients together in each step. The other rank is a process that this one
// forks; it computes longer than this one, or, in the healthy twin, just as long.
#define _GNU_SOURCE
#include "scenario.h"

#include "fake_nccl.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, GRADIENTS = 1 << 20 };

static ncclUniqueId id;
static int other_rank, start[2];
static ncclComm_t comm;
static __thread struct dispatcher *own;

// Jobs of one rank do without the library.
static struct {
    __typeof__(&ncclGetUniqueId) get_unique_id;
    __typeof__(&ncclCommInitRank) init_rank;
    __typeof__(&ncclAllReduce) all_reduce;
    __typeof__(&fake_nccl_wait) wait;
} nccl;

static void load_library(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW);

    if (!library)
        fail("no libnccl");
    nccl.get_unique_id = dlsym(library, "ncclGetUniqueId");
    nccl.init_rank = dlsym(library, "ncclCommInitRank");
    nccl.all_reduce = dlsym(library, "ncclAllReduce");
    nccl.wait = dlsym(library, "fake_nccl_wait");
}

// Inside the wait for the GPU, which cannot finish the operation before all ranks have asked for it.
static void meet_others(const char *symbol)
{
    uint64_t before = monotonic_ns();

    (void)symbol;
    if (!own)
        return;
    if (nccl.wait(comm))
        fail("the other rank does not come");
    own->fault_ns += monotonic_ns() - before;
}

static void become_rank(int rank)
{
    if (nccl.init_rank(&comm, RANKS, id, rank) != ncclSuccess)
        fail("cannot join the other rank");
}

static NOINLINE void launch_and_reduce(struct dispatcher *dispatcher)
{
    static float gradients[16];

    own = dispatcher;
    for (int i = 0; i < dispatcher->shape.launches; i++) {
        burn_ns(dispatcher->shape.host_ns / dispatcher->shape.launches);
        launch_kernel(dispatcher);
    }
    nccl.all_reduce(gradients, gradients, GRADIENTS, ncclFloat32, ncclSum, comm, (cudaStream_t)dispatcher->stream);
}

static NOINLINE void compute_more(const struct shape *shape)
{
    burn_ns(shape->fault_ns); // blame: late-rank
}

// The other rank's training loop. It goes on until this process ends.
static void be_other_rank(void)
{
    struct dispatcher dispatcher = {.shape = draw_shape(options.seed, 0)};
    void *context;
    char go;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "other-rank");
    if (read(start[0], &go, 1) != 1)
        _exit(1);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuStreamCreate(&dispatcher.stream, 0);
    fake_cuda_kernel_ns(dispatcher.shape.gpu_ns / dispatcher.shape.launches);
    become_rank(1);
    for (;;) {
        if (!options.healthy)
            compute_more(&dispatcher.shape); // blame: late-rank
        launch_and_reduce(&dispatcher);
        cuStreamSynchronize(dispatcher.stream);
    }
}

static void end_other_rank(void)
{
    kill(other_rank, SIGKILL);
    waitpid(other_rank, NULL, 0);
}

static void prepare(void)
{
    load_library();
    fake_cuda_hook(meet_others);
    fake_cuda_set("cuStreamSynchronize", FAKE_MEET, 0, 0);
    if (nccl.get_unique_id(&id) != ncclSuccess || pipe(start) != 0)
        fail("cannot prepare for another rank");
    other_rank = fork();
    if (other_rank == 0)
        be_other_rank();
    atexit(end_other_rank);
    snprintf(ready_words, sizeof(ready_words), " child=%d", other_rank);
}

static void begin(void)
{
    if (!options.healthy)
        blame_process(other_rank);
    if (write(start[1], "", 1) != 1)
        fail("the other rank is gone");
    become_rank(0);
}

const struct fault late_rank = {
    .name = "late-rank", .prepare = prepare, .begin = begin, .launch_all = launch_and_reduce};
