// SPDX-License-Identifier: Apache-2.0
//
// Frames of all layouts.
#define _GNU_SOURCE
#include "situations.h"

#include <alloca.h>
#include <stdalign.h>
#include <stdarg.h>
#include <string.h>

// Memory that the compiler believes to be used.
static void touch(volatile void *memory)
{
    __asm__ volatile("" : : "r"(memory) : "memory");
}

static NOINLINE int recurse(unsigned long sequence, int depth)
{
    if (depth <= 1)
        witness(sequence);
    else
        depth += recurse(sequence, depth - 1);
    KEEP_FRAME;
    return depth;
}

void in_recursion(unsigned long sequence)
{
    recurse(sequence, 1 + sequence * 7 % MAX_DEPTH);
    KEEP_FRAME;
}

static void odd(unsigned long sequence, int depth);

static NOINLINE void even(unsigned long sequence, int depth)
{
    volatile char small[24];

    touch(small);
    if (depth == 0)
        witness(sequence);
    else
        odd(sequence, depth - 1);
    KEEP_FRAME;
}

static NOINLINE void odd(unsigned long sequence, int depth)
{
    volatile char larger[200];

    touch(larger);
    if (depth == 0)
        witness(sequence);
    else
        even(sequence, depth - 1);
    KEEP_FRAME;
}

void in_mutual_recursion(unsigned long sequence)
{
    even(sequence, sequence * 3 % MAX_DEPTH);
    KEEP_FRAME;
}

static NOINLINE void allocate(unsigned long sequence, size_t bytes, int depth)
{
    void *memory = alloca(bytes);

    touch(memory);
    if (depth == 0)
        witness(sequence);
    else
        allocate(sequence, bytes + 24, depth - 1);
    KEEP_FRAME;
}

void with_alloca(unsigned long sequence)
{
    allocate(sequence, 1 + sequence % 997, sequence % 9);
    KEEP_FRAME;
}

// More than an 8 bit and more than a 16 bit offset.
static NOINLINE void take_much(unsigned long sequence, int depth)
{
    volatile char large[100 * 1024];

    touch(large);
    if (depth == 0)
        witness(sequence);
    else
        take_much(sequence, depth - 1);
    KEEP_FRAME;
}

void with_large_frame(unsigned long sequence)
{
    take_much(sequence, sequence % 5);
    KEEP_FRAME;
}

static NOINLINE void align(unsigned long sequence, int depth)
{
    alignas(64) volatile char vector[64];

    touch(vector);
    if (depth == 0)
        witness(sequence);
    else
        align(sequence, depth - 1);
    KEEP_FRAME;
}

void with_realigned_stack(unsigned long sequence)
{
    align(sequence, sequence % 20);
    KEEP_FRAME;
}

// Such a frame finds its caller through a register that it saves in itself.
static NOINLINE long align_and_allocate(unsigned long sequence, int depth, long a, long b, long c, long d, long e)
{
    alignas(128) volatile char vector[128];
    void *memory = alloca(16 + depth * 40);

    touch(vector);
    touch(memory);
    if (depth == 0)
        witness(sequence);
    else
        a += align_and_allocate(sequence, depth - 1, b, c, d, e, a);
    return a + e;
}

void with_realigned_alloca(unsigned long sequence)
{
    align_and_allocate(sequence, sequence % 20, 1, 2, 3, 4, 5);
    KEEP_FRAME;
}

static NOINLINE long sum(long a, long b, long c, long d, long e, long f, long g, long h, long i, unsigned long sequence,
                         int depth)
{
    if (depth == 0)
        witness(sequence);
    else
        a += sum(b, c, d, e, f, g, h, i, a, sequence, depth - 1);
    return a + i;
}

void with_arguments_on_stack(unsigned long sequence)
{
    sum(1, 2, 3, 4, 5, 6, 7, 8, 9, sequence, sequence % 13);
    KEEP_FRAME;
}

// Everything that a function must preserve is in use across the call, the frame pointer's register too where it is
// free.
static NOINLINE long keep_many(unsigned long sequence, int depth, long a, long b, long c)
{
    long d = a * 3 + depth, e = b * 5 + depth, f = c * 7 + depth;

    if (depth == 0)
        witness(sequence);
    else
        a += keep_many(sequence, depth - 1, f, e, d);
    return a ^ b ^ c ^ d * e * f;
}

void with_saved_registers(unsigned long sequence)
{
    keep_many(sequence, sequence % 31, sequence, 2, 3);
    KEEP_FRAME;
}

static NOINLINE double add_all(unsigned long sequence, int count, ...)
{
    double total = 0;
    va_list values;

    va_start(values, count);
    for (int i = 0; i < count; i++)
        total += va_arg(values, double);
    va_end(values);
    witness(sequence);
    return total;
}

void with_variable_arguments(unsigned long sequence)
{
    add_all(sequence, sequence % 4, 1.0, 2.0, 3.0);
    KEEP_FRAME;
}
