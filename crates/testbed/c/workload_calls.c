// SPDX-License-Identifier: Apache-2.0
//
// Making calls: one, and many at a pace.
#define _GNU_SOURCE
#include "workload.h"

#include <errno.h>
#include <time.h>

uint64_t monotonic_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void sleep_until(uint64_t deadline_ns)
{
    struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) == EINTR)
        ;
}

static void add_clocks(struct tally *tally, const struct clocks *before)
{
    struct clocks spent = clocks_since(before);

    tally->cpu_ns += spent.cpu_ns;
    tally->run_queue_ns += spent.run_queue_ns;
    tally->waiting_calls += spent.waits > 0;
}

void make_call(struct caller *caller, const struct op *op)
{
    struct tally *tally = &caller->tallies[op - ops];
    cuda_function function = function_of(op);
    struct clocks before = {0};
    uint64_t start, end;
    int ret;

    caller->inside = op;
    if (options.clocks)
        before = read_clocks();
    start = monotonic_ns();
    ret = op->call(caller, function);
    end = monotonic_ns();
    // A child born inside the call returns from it without having made it.
    if (caller->inside != op)
        return;
    caller->inside = NULL;
    if (options.clocks)
        add_clocks(tally, &before);
    if (tally->calls++ == 0)
        tally->first_ns = start;
    tally->last_ns = end;
    tally->wall_ns += end - start;
    tally->errors += ret != 0;
}

// A call the hook may jump out of counts as abandoned then.
static void make_faulty_call(struct caller *caller, const struct op *op)
{
    if (setjmp(caller->before_call) == 0)
        make_call(caller, op);
    else
        caller->tallies[op - ops].abandoned++;
}

void make_calls(struct caller *caller)
{
    int length;
    const struct op *const *sequence = mix_of(&options, &length);
    uint64_t start = monotonic_ns(), next = start;
    uint64_t end = start + (uint64_t)(options.duration_s * 1e9);
    uint64_t period = options.rate > 0 ? (uint64_t)(1e9 / options.rate) : 0;
    int at = 0;

    while (options.duration_s > 0 ? monotonic_ns() < end : caller->calls_made < options.calls) {
        const struct op *op = sequence[at];

        caller->calls_made++;
        at = at + 1 == length ? 0 : at + 1;
        if (is_faulty(op))
            make_faulty_call(caller, op);
        else
            make_call(caller, op);
        if (period) {
            next += period;
            sleep_until(next);
        }
    }
}
