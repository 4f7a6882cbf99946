// SPDX-License-Identifier: Apache-2.0
//
// A program like a training job, with one known fault or, as its healthy twin, without it:
//
//     scenario --fault NAME --seed N [--threads N] [--duration-ms N] [--healthy]
//
// Each dispatch thread makes steps: launches, a copy, and a wait for the GPU, which takes most of the time as long as
// nothing is wrong. "go" on stdin starts it; at the end it says who was hit, who is to blame and how far it got. The
// end of stdin ends it.
#define _GNU_SOURCE
#include "scenario.h"

#include <stdio.h>
#include <unistd.h>

char ready_words[64];

static struct dispatcher dispatchers[MAX_DISPATCHERS];

void start_thread(void *(*run)(void *), const char *name)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, run, NULL) != 0)
        fail("cannot start a thread");
    pthread_setname_np(thread, name);
    pthread_detach(thread);
}

static void enter_cgroup(void)
{
    char path[512];
    FILE *file;

    if (!options.cgroup)
        fail("--cgroup is missing");
    snprintf(path, sizeof(path), "%s/cgroup.procs", options.cgroup);
    file = fopen(path, "w");
    if (!file || fprintf(file, "0") < 0 || fclose(file) != 0)
        fail("cannot enter the control group");
}

static void prepare(void)
{
    for (int i = 0; i < options.threads; i++) {
        dispatchers[i].index = i;
        dispatchers[i].is_victim = i == 0 || options.fault->hits_all;
        dispatchers[i].shape = draw_shape(options.seed, i);
        if (dispatchers[i].is_victim && options.fault->draw)
            options.fault->draw(&dispatchers[i].shape);
    }
    cuInit(0);
    plan_calls(&dispatchers[0].shape);
    if (options.fault->is_in_cgroup)
        enter_cgroup();
    if (options.fault->prepare)
        options.fault->prepare();
}

// The main thread is the first dispatcher.
static void run(void)
{
    for (int i = 1; i < options.threads; i++)
        if (pthread_create(&dispatchers[i].thread, NULL, run_dispatcher, &dispatchers[i]) != 0)
            fail("cannot start a thread");
    run_dispatcher(&dispatchers[0]);
    for (int i = 1; i < options.threads; i++)
        pthread_join(dispatchers[i].thread, NULL);
}

int main(int argc, char **argv)
{
    uint64_t started_ns, elapsed_ns;

    parse_options(argc, argv);
    prepare();
    tell_ready(ready_words);
    wait_for_go();
    started_ns = monotonic_ns();
    start_clock();
    if (options.fault->begin)
        options.fault->begin();
    run();
    elapsed_ns = monotonic_ns() - started_ns;
    if (options.fault->end)
        options.fault->end();
    print_truth(dispatchers, options.threads, elapsed_ns);
    // Other threads may hold locks that an orderly exit would wait for.
    _exit(0);
}
