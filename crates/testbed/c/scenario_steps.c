// SPDX-License-Identifier: Apache-2.0
//
// The training loop of one dispatch thread, and where a fault comes into it.
#define _GNU_SOURCE
#include "scenario.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t ends_at_ns;
static char loss[64 * 1024];

void start_clock(void)
{
    ends_at_ns = monotonic_ns() + options.duration_ms * MS;
}

bool is_over(void)
{
    return monotonic_ns() >= ends_at_ns;
}

// Of the time that the program runs.
double share_done(void)
{
    return 1 - (double)(int64_t)(ends_at_ns - monotonic_ns()) / (options.duration_ms * MS);
}

NOINLINE void launch_kernel(struct dispatcher *dispatcher)
{
    cuLaunchKernel(0x5eed0001, 1, 1, 1, 256, 1, 1, 0, dispatcher->stream, NULL, NULL); // blame: tiny-kernels
}

static void hit(struct dispatcher *dispatcher, uint64_t ns)
{
    uint64_t start = monotonic_ns();

    options.fault->hit(dispatcher, ns);
    dispatcher->fault_ns += monotonic_ns() - start;
}

// A fault comes before the first launches of a step, when the GPU has nothing or little to do.
static NOINLINE void launch_all(struct dispatcher *dispatcher)
{
    const struct fault *fault = options.fault;
    const struct shape *shape = &dispatcher->shape;

    for (int i = 0; i < shape->launches; i++) {
        if (dispatcher->is_victim && fault->hit && i < shape->pieces)
            hit(dispatcher, shape->fault_ns / shape->pieces);
        burn_ns(shape->host_ns / shape->launches); // victim: cpu-hog cpu-crowd cpu-hog-threads cpu-quota
        if (dispatcher->is_victim && fault->launch)
            fault->launch(dispatcher);
        else
            launch_kernel(dispatcher); // blame: tiny-kernels
    }
}

static NOINLINE void make_step(struct dispatcher *dispatcher)
{
    const struct fault *fault = options.fault;

    if (dispatcher->is_victim && fault->launch_all)
        fault->launch_all(dispatcher);
    else
        launch_all(dispatcher);
    cuMemcpyDtoHAsync_v2(loss, 0x7e0000000000, sizeof(loss), dispatcher->stream);
    cuStreamSynchronize(dispatcher->stream); // victim: long-kernels
    if (dispatcher->is_victim && fault->end_step)
        fault->end_step(dispatcher);
    if (++dispatcher->steps % dispatcher->shape.pause_every == 0)
        sleep_ns(dispatcher->shape.pause_ns);
}

// The same for all threads; spinning is for those who are alone.
void plan_calls(const struct shape *shape)
{
    bool spins = shape->wants_to_spin && options.fault->may_spin && options.threads == 1;

    fake_cuda_set("cuLaunchKernel", FAKE_LAUNCH, 2 * US, 0);
    fake_cuda_set("cuGraphLaunch", FAKE_LAUNCH, 10 * US, 0);
    fake_cuda_set("cuStreamSynchronize", spins ? FAKE_SPIN : FAKE_AWAIT, 0, 0);
}

// Several dispatch threads weigh about as much as one would: three more halve the weight, five more take two thirds.
static void be_nice(void)
{
    static const int more_for[] = {[1] = 0, [2] = 3, [3] = 5};
    int most = sizeof(more_for) / sizeof(*more_for) - 1;
    int niceness = options.fault->niceness + more_for[options.threads < most ? options.threads : most];

    if (setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + niceness) != 0)
        fail("cannot be nice");
}

static void set_up(struct dispatcher *dispatcher)
{
    void *context;

    dispatcher->tid = gettid();
    if (options.fault->pinned)
        pin_to_cpu(0);
    if (options.fault->niceness)
        be_nice();
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuStreamCreate(&dispatcher->stream, 0);
    fake_cuda_kernel_ns(dispatcher->shape.gpu_ns / dispatcher->shape.launches);
    if (dispatcher->is_victim && options.fault->set_up)
        options.fault->set_up(dispatcher);
}

void *run_dispatcher(void *argument)
{
    struct dispatcher *dispatcher = argument;

    set_up(dispatcher);
    while (!is_over())
        make_step(dispatcher);
    observe_thread(dispatcher);
    return NULL;
}
