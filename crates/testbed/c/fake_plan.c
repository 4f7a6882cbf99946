// SPDX-License-Identifier: Apache-2.0
//
// Plans: how they are set, and what following one does.
#define _GNU_SOURCE
#include "fake_plan.h"

#include "fake_gpu.h"
#include "fake_waits.h"

#include <string.h>
#include <time.h>

#define PLAN_PLAIN(name) [INDEX_##name] = {.symbol = #name},
#define PLAN_OUT(name, slot) [INDEX_##name] = {.symbol = #name},

struct plan plans[DRIVER_COUNT] = {DRIVER_FUNCTIONS(PLAN_PLAIN, PLAN_OUT, PLAN_PLAIN)};

static fake_hook current_hook;

static int is_version_of(const char *symbol, const char *api)
{
    size_t length = strlen(api);

    if (strncmp(symbol, api, length) != 0)
        return 0;
    return symbol[length] == '\0' || strncmp(symbol + length, "_v", 2) == 0;
}

EXPORT int fake_cuda_set(const char *api, enum fake_mode mode, uint64_t ns, int ret)
{
    int changed = 0;

    if (mode == FAKE_IO)
        prepare_disk();
    for (int i = 0; i < DRIVER_COUNT; i++) {
        if (!is_version_of(plans[i].symbol, api))
            continue;
        plans[i].ns = ns;
        plans[i].ret = ret;
        __atomic_store_n(&plans[i].mode, mode, __ATOMIC_RELEASE);
        changed++;
    }
    return changed;
}

EXPORT void fake_cuda_hook(fake_hook hook)
{
    current_hook = hook;
}

EXPORT int fake_cuda_prepare_thread(void)
{
    return start_releaser();
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void burn(uint64_t ns)
{
    uint64_t end = thread_cpu_ns() + ns;

    while (thread_cpu_ns() < end)
        for (volatile int i = 0; i < 100; i++)
            ;
}

int follow_plan(const struct plan *plan)
{
    switch (plan->mode) {
    case FAKE_RETURN:
        break;
    case FAKE_BURN:
        burn(plan->ns);
        break;
    case FAKE_SLEEP:
        sleep_until(monotonic_ns() + plan->ns);
        break;
    case FAKE_FUTEX:
        wait_on_futex(plan->ns);
        break;
    case FAKE_PIPE:
        wait_on_pipe(plan->ns);
        break;
    case FAKE_IO:
        read_from_disk(plan->ns);
        break;
    case FAKE_HOOK:
        if (current_hook)
            current_hook(plan->symbol);
        break;
    case FAKE_LAUNCH:
        burn(plan->ns);
        give_gpu_a_kernel();
        break;
    case FAKE_AWAIT:
        sleep_until(gpu_done_ns());
        break;
    case FAKE_MEET:
        sleep_until(gpu_done_ns());
        if (current_hook)
            current_hook(plan->symbol);
        break;
    case FAKE_SPIN:
        while (monotonic_ns() < gpu_done_ns())
            ;
        break;
    }
    return plan->ret;
}
