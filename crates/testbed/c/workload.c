// SPDX-License-Identifier: Apache-2.0
//
// The workload's life: wait, load, start threads, say what happened.
#define _GNU_SOURCE
#include "workload.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

__thread struct caller *current_caller;

static struct caller callers[MAX_THREADS];
static uint64_t started_ns;

static void wait_for_line(void)
{
    char line[256];

    if (!fgets(line, sizeof(line), stdin))
        exit(0);
}

static void take_name(void)
{
    if (options.name)
        prctl(PR_SET_NAME, options.name);
}

static bool blocks_on_releaser(void)
{
    for (int i = 0; i < options.behaviour_count; i++)
        if (options.behaviours[i].mode == FAKE_FUTEX || options.behaviours[i].mode == FAKE_PIPE)
            return true;
    return false;
}

static void *run_caller(void *argument)
{
    struct caller *caller = argument;
    struct clocks before;

    current_caller = caller;
    caller->tid = gettid();
    caller->device = caller->index % options.devices;
    take_name();
    if (blocks_on_releaser())
        caller->releaser_tid = driver_function_named("fake_cuda_prepare_thread")();
    if (options.clocks)
        before = read_clocks();
    set_up(caller);
    make_calls(caller);
    if (options.clocks)
        caller->clocks = clocks_since(&before);
    // The child of --fork-inside has this one thread.
    if (caller->child_pid < 0) {
        caller->child_pid = 0;
        print_truth(caller, 1, monotonic_ns() - started_ns);
        _exit(0);
    }
    return NULL;
}

static void run_callers(void)
{
    pthread_t threads[MAX_THREADS];

    for (int i = 0; i < MAX_THREADS; i++)
        callers[i].index = i;
    if (options.threads == 0)
        run_caller(&callers[0]);
    for (int i = 0; i < options.threads; i++)
        if (pthread_create(&threads[i], NULL, run_caller, &callers[i]) != 0)
            fail("pthread_create", "failed");
    for (int i = 0; i < options.threads; i++)
        pthread_join(threads[i], NULL);
    if (callers[0].child_pid > 0)
        waitpid(callers[0].child_pid, NULL, 0);
}

// Starts over as a new image of the same process, without the options that are for the first one only.
static void exec_self(void)
{
    char **argument = options.argv, **kept = options.argv;

    for (; *argument; argument++)
        if (strcmp(*argument, "--exec-self") != 0 && strcmp(*argument, "--wait-start") != 0)
            *kept++ = *argument;
    *kept = NULL;
    setenv("WORKLOAD_IMAGE", "1", 1);
    execv("/proc/self/exe", options.argv);
    fail("execv", "failed");
}

static void export_devices(void)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", options.devices > 2 ? options.devices : 2);
    setenv("FAKE_CUDA_DEVICES", text, 0);
}

int main(int argc, char **argv)
{
    int count;

    parse_options(argc, argv);
    export_devices();
    take_name();
    if (!options.driver_path)
        load_libraries();
    if (options.wait_start) {
        printf("ready %d\n", getpid());
        fflush(stdout);
        wait_for_line();
    }
    if (options.driver_path)
        load_libraries();
    started_ns = monotonic_ns();
    run_callers();
    count = options.threads ? options.threads : 1;
    print_truth(callers, count, monotonic_ns() - started_ns);
    if (options.exec_self)
        exec_self();
    if (options.wait_end)
        wait_for_line();
    return 0;
}
