// SPDX-License-Identifier: Apache-2.0
//
// Calls witness() from as many situations as the argument says, each another one than the last.
#include "situations.h"

#include <stdio.h>
#include <stdlib.h>

static situation *const situations[] = {
    in_recursion,
    in_mutual_recursion,
    with_alloca,
    with_large_frame,
    with_realigned_stack,
    with_realigned_alloca,
    with_arguments_on_stack,
    with_saved_registers,
    with_variable_arguments,
    through_pointers,
    through_qsort,
    through_tree,
    through_phdrs,
    through_once,
    through_tail_calls,
    behind_tail_call,
    without_return,
    in_unlikely_code,
    in_signal_handler,
    on_signal_stack,
    in_timer_signal,
    in_fault_handler,
    in_thread,
    in_deep_thread,
    in_coroutine,
};

// Every number comes another way, through four kinds of frames.

typedef void leg(unsigned long sequence, unsigned long way);
static leg small_leg, large_leg, dynamic_leg, plain_leg;
static leg *const legs[] = {small_leg, large_leg, dynamic_leg, plain_leg};

static NOINLINE void go_on(unsigned long sequence, unsigned long way)
{
    if (way == 0)
        situations[sequence % (sizeof(situations) / sizeof(*situations))](sequence);
    else
        legs[way % 4](sequence, way / 4);
    KEEP_FRAME;
}

static void plain_leg(unsigned long sequence, unsigned long way)
{
    go_on(sequence, way);
    KEEP_FRAME;
}

static void small_leg(unsigned long sequence, unsigned long way)
{
    volatile long values[3] = {(long)way};

    go_on(sequence, way);
    values[1] = values[0];
}

static void large_leg(unsigned long sequence, unsigned long way)
{
    volatile char values[5000] = {(char)way};

    go_on(sequence, way);
    values[1] = values[0];
}

static void dynamic_leg(unsigned long sequence, unsigned long way)
{
    volatile char values[1 + way];

    values[way] = 0;
    go_on(sequence, way);
    values[0] = values[way];
}

int main(int argc, char **argv)
{
    unsigned long count = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;

    if (count == 0) {
        fprintf(stderr, "usage: %s COUNT\n", argv[0]);
        return 2;
    }
    witness_start();
    for (unsigned long i = 0; i < count; i++)
        go_on(i, i);
    witness_finish();
    return 0;
}
