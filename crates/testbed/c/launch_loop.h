// SPDX-License-Identifier: Apache-2.0
//
// The parts of the launch loop: its work, and the calls that are slow on purpose.
#ifndef LAUNCH_LOOP_H
#define LAUNCH_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { NUMBERS = 512 };

// launch_loop_work.c

// The work of one thread: where it is in its memory.
struct walk {
    uint64_t at;
    _Alignas(64) uint64_t numbers[NUMBERS];
};

// How much of it lies between two launches. Progress is counted in chunks, which are short even where launches are
// rare.
struct amount {
    uint64_t chunks, steps_per_chunk;
};

struct amount amount_for(double rate);
void take_steps(struct walk *walk, uint64_t steps);
uint64_t clock_ns(clockid_t clock);

// launch_loop_slow.c
void plan_slow_launches(double share, uint64_t ns);
bool next_launch_is_slow(uint64_t *random);
void start_slow_op(const char *name, uint64_t every_ns, uint64_t ns);
void finish_slow_op(void);

#endif
