// SPDX-License-Identifier: Apache-2.0
//
// Calls of the launch loop that are slow on purpose: a share of its launches, and another function that a thread of its
// own calls now and then.
#define _GNU_SOURCE
#include "launch_loop.h"

#include "workload.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SLOW_CALLS = 1 << 16 };

static double slow_share;
static uint64_t slow_launch_ns;
static __thread bool launch_is_slow;

static void burn_if_slow(const char *symbol)
{
    uint64_t end;

    (void)symbol;
    if (!launch_is_slow)
        return;
    for (end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + slow_launch_ns; clock_ns(CLOCK_THREAD_CPUTIME_ID) < end;)
        ;
}

void plan_slow_launches(double share, uint64_t ns)
{
    slow_share = share;
    slow_launch_ns = ns;
    fake_cuda_hook(burn_if_slow);
    fake_cuda_set("cuLaunchKernel", FAKE_HOOK, 0, 0);
}

// Drawn by chance (xorshift), so that they are slow in no rhythm that a sampling tracer could fall into.
bool next_launch_is_slow(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    launch_is_slow = (*random >> 11) * 0x1p-53 < slow_share;
    return launch_is_slow;
}

static struct {
    const struct op *op;
    cuda_function function;
    uint64_t every_ns;
    pthread_t thread;
    sem_t over;
    int tid, calls;
    uint64_t starts_ns[MAX_SLOW_CALLS];
} slow;

static bool is_over_before(uint64_t deadline_ns)
{
    struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    int waited;

    while ((waited = sem_clockwait(&slow.over, CLOCK_MONOTONIC, &deadline)) != 0 && errno == EINTR)
        ;
    return waited == 0;
}

static void *run_slow_op(void *unused)
{
    struct caller caller = {.stream = 0x57ea0002};
    uint64_t next_ns = clock_ns(CLOCK_MONOTONIC);

    slow.tid = gettid();
    while (slow.calls < MAX_SLOW_CALLS && !is_over_before(next_ns += slow.every_ns)) {
        slow.starts_ns[slow.calls] = clock_ns(CLOCK_MONOTONIC);
        slow.op->call(&caller, slow.function);
        slow.calls++;
    }
    return unused;
}

void start_slow_op(const char *name, uint64_t every_ns, uint64_t ns)
{
    for (int i = 0; i < op_count && !slow.op; i++)
        if (strcmp(ops[i].name, name) == 0)
            slow.op = &ops[i];
    slow.function = slow.op ? (cuda_function)dlsym(RTLD_DEFAULT, slow.op->symbol) : NULL;
    // A slow launch would slow the loop down.
    if (!slow.function || strcmp(name, "cuLaunchKernel") == 0 || fake_cuda_set(name, FAKE_SLEEP, ns, 0) == 0) {
        fprintf(stderr, "launch_loop: --slow-op: %s\n", name);
        exit(2);
    }
    slow.every_ns = every_ns;
    sem_init(&slow.over, 0, 0);
    if (pthread_create(&slow.thread, NULL, run_slow_op, NULL) != 0)
        exit(2);
}

void finish_slow_op(void)
{
    if (!slow.op)
        return;
    sem_post(&slow.over);
    pthread_join(slow.thread, NULL);
    printf("{\"kind\":\"slow_op\",\"op\":\"%s\",\"tid\":%d,\"starts_ns\":[", slow.op->name, slow.tid);
    for (int i = 0; i < slow.calls; i++)
        printf("%s%" PRIu64, i ? "," : "", slow.starts_ns[i]);
    printf("]}\n");
}
