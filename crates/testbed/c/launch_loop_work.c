// SPDX-License-Identifier: Apache-2.0
//
// The work between two launches: multiplications that wait for each other and for what they read from a few kilobytes.
// Other users of the machine slow that down less than most other work, so that what a tracer takes can be told apart.
#define _GNU_SOURCE
#include "launch_loop.h"

enum { CALIBRATIONS = 20, CALIBRATION_STEPS = 1 << 20, CHUNK_NS = 10000 };

uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Where a step goes depends on what the one before it read, so that no step is for free.
void take_steps(struct walk *walk, uint64_t steps)
{
    uint64_t at = walk->at;

    for (uint64_t i = 0; i < steps; i++)
        at = at * 6364136223846793005 + walk->numbers[at >> 32 & (NUMBERS - 1)] + 1;
    walk->at = at;
}

// The fastest of several tries is the one that nothing disturbed.
static double ns_per_step(void)
{
    static struct walk walk;
    uint64_t best = UINT64_MAX;

    for (int i = 0; i < CALIBRATIONS; i++) {
        uint64_t before = clock_ns(CLOCK_THREAD_CPUTIME_ID), taken;

        take_steps(&walk, CALIBRATION_STEPS);
        taken = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
        best = taken < best ? taken : best;
    }
    return (double)best / CALIBRATION_STEPS;
}

struct amount amount_for(double rate)
{
    double work_ns = 1e9 / rate;
    struct amount amount = {.chunks = work_ns / CHUNK_NS + 1};

    amount.steps_per_chunk = work_ns / amount.chunks / ns_per_step() + 0.5;
    return amount;
}
