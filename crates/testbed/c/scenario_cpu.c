// SPDX-License-Identifier: Apache-2.0
//
// Faults in which the dispatch threads do not get the CPU they want. They have more to do on it than in the other
// scenarios, and what they do is the same in the healthy program.
#define _GNU_SOURCE
#include "scenario.h"

#include <unistd.h>

// Next to one hog, or to a crowd of three, a thread as nice as this gets a tenth of a CPU.
enum { NICE_TO_ONE = 10, NICE_TO_CROWD = 5 };

static const double SHARE_NEXT_TO_HOGS = 0.1;

// The dispatch threads want as much of a CPU as costs them the fault's share when they get only so much of it: half of
// it before the first launch of a step.
static void want_cpu(struct shape *shape, double they_get)
{
    double slowdown = (double)(shape->gpu_ns + shape->fault_ns) / shape->gpu_ns;

    shape->host_ns = shape->gpu_ns * they_get * slowdown / 2 / options.threads;
    shape->fault_ns = shape->host_ns;
}

static NOINLINE void make_input(struct dispatcher *dispatcher, uint64_t ns)
{
    (void)dispatcher;
    burn_ns(ns); // victim: cpu-hog cpu-crowd cpu-hog-threads cpu-quota
}

static void draw_hog(struct shape *shape)
{
    want_cpu(shape, SHARE_NEXT_TO_HOGS);
}

// The processes that take the CPU are peers: nothing is to be done here.
const struct fault cpu_hog = {
    .name = "cpu-hog", .hits_all = true, .pinned = true, .niceness = NICE_TO_ONE, .draw = draw_hog, .hit = make_input};

const struct fault cpu_crowd = {.name = "cpu-crowd",
                                .hits_all = true,
                                .pinned = true,
                                .niceness = NICE_TO_CROWD,
                                .draw = draw_hog,
                                .hit = make_input};

static NOINLINE void *burn(void *unused)
{
    blame_thread(gettid());
    pin_to_cpu(0);
    while (!is_over())
        burn_ns(MS); // blame: cpu-hog-threads
    return unused;
}

static void begin_hog_thread(void)
{
    if (!options.healthy)
        start_thread(burn, "tokenizer");
}

const struct fault cpu_hog_threads = {.name = "cpu-hog-threads",
                                      .hits_all = true,
                                      .pinned = true,
                                      .niceness = NICE_TO_ONE,
                                      .draw = draw_hog,
                                      .hit = make_input,
                                      .begin = begin_hog_thread};

// What overlaps with the GPU's work costs less, so that the threads want a little more.
static void draw_quota(struct shape *shape)
{
    want_cpu(shape, 0.25);
}

// The control group that it lives in has a quota of a fifth of a CPU, or none.
const struct fault cpu_quota = {
    .name = "cpu-quota", .hits_all = true, .is_in_cgroup = true, .draw = draw_quota, .hit = make_input};
