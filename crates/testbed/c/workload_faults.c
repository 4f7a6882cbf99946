// SPDX-License-Identifier: Apache-2.0
//
// Ways to leave a call other than returning from it. The hook runs inside the call.
#define _GNU_SOURCE
#include "workload.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { CALLS_OF_CHILD = 10 };

extern __thread struct caller *current_caller;

static const struct op *faulty;

bool is_faulty(const struct op *op)
{
    return op == faulty;
}

// The child returns from the call it was born in, makes calls of its own and says so.
static void fork_here(struct caller *caller)
{
    caller->child_pid = fork();
    if (caller->child_pid != 0)
        return;
    memset(caller->tallies, 0, sizeof(caller->tallies));
    caller->tid = getpid();
    caller->calls_made = 0;
    caller->inside = NULL;
    caller->child_pid = -1;
    options.calls = CALLS_OF_CHILD;
    options.duration_s = 0;
}

static void leave(const char *symbol)
{
    struct caller *caller = current_caller;

    (void)symbol;
    if (!caller || caller->inside != faulty || caller->calls_made == 0)
        return;
    if (options.fault == DIE_INSIDE && caller->calls_made == options.calls) {
        caller->tallies[faulty - ops].abandoned++;
        pthread_exit(NULL);
    }
    if (options.fault == LONGJMP && caller->calls_made % 2 == 0)
        longjmp(caller->before_call, 1);
    if (options.fault == FORK_INSIDE && caller->index == 0 && caller->calls_made == 1 && caller->child_pid == 0)
        fork_here(caller);
}

void install_fault(void)
{
    int length;
    const char *api;

    if (options.fault == NO_FAULT)
        return;
    faulty = mix_of(&options, &length)[0];
    api = faulty->inner ? faulty->inner : faulty->name;
    driver_function_named("fake_cuda_hook")(leave);
    driver_function_named("fake_cuda_set")(api, FAKE_HOOK, (uint64_t)0, 0);
}
