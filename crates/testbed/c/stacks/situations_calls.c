// SPDX-License-Identifier: Apache-2.0
//
// Ways from one function into the next.
#define _GNU_SOURCE
#include "situations.h"

#include <link.h>
#include <pthread.h>
#include <search.h>
#include <setjmp.h>
#include <stdlib.h>

// What the C library calls back gets no argument of ours.
static __thread unsigned long current;
static __thread int is_reported;

static NOINLINE void report_once(void)
{
    if (!is_reported)
        witness(current);
    is_reported = 1;
}

static void begin(unsigned long sequence)
{
    current = sequence;
    is_reported = 0;
}

// A way through the three functions for every number.

typedef void step(unsigned long sequence, unsigned long way);
static step one_step, step_with_frame, step_back;
static step *const steps[] = {one_step, step_with_frame, step_back};

static NOINLINE void go_on(unsigned long sequence, unsigned long way)
{
    if (way == 0)
        witness(sequence);
    else
        steps[way % 3](sequence, way / 3);
    KEEP_FRAME;
}

static void one_step(unsigned long sequence, unsigned long way)
{
    go_on(sequence, way);
    KEEP_FRAME;
}

static void step_with_frame(unsigned long sequence, unsigned long way)
{
    volatile long values[7] = {(long)way};

    go_on(sequence, way);
    values[1] = values[0];
}

static void step_back(unsigned long sequence, unsigned long way)
{
    go_on(sequence, way);
    KEEP_FRAME;
}

void through_pointers(unsigned long sequence)
{
    go_on(sequence, sequence * 2654435761u % 59049);
    KEEP_FRAME;
}

static int compare(const void *left, const void *right)
{
    report_once();
    return *(const int *)left - *(const int *)right;
}

void through_qsort(unsigned long sequence)
{
    int numbers[64];
    int count = 2 + sequence % 62;

    for (int i = 0; i < count; i++)
        numbers[i] = (i * 37 + sequence) % 101;
    begin(sequence);
    qsort(numbers, count, sizeof(*numbers), compare);
    KEEP_FRAME;
}

static int compare_numbers(const void *left, const void *right)
{
    return (left > right) - (left < right);
}

static void visit(const void *node, VISIT order, int level)
{
    (void)node, (void)level;
    if (order == leaf)
        report_once();
}

// A walk down a tree is a recursion inside the C library.
void through_tree(unsigned long sequence)
{
    void *root = NULL;
    unsigned long count = 1 + sequence % 50;

    for (unsigned long i = 1; i <= count; i++)
        tsearch((void *)i, &root, compare_numbers);
    begin(sequence);
    twalk(root, visit);
    for (unsigned long i = 1; i <= count; i++)
        tdelete((void *)i, &root, compare_numbers);
}

static int see_object(struct dl_phdr_info *object, size_t bytes, void *unused)
{
    (void)object, (void)bytes, (void)unused;
    report_once();
    return 1;
}

void through_phdrs(unsigned long sequence)
{
    begin(sequence);
    dl_iterate_phdr(see_object, NULL);
    KEEP_FRAME;
}

void through_once(unsigned long sequence)
{
    pthread_once_t once = PTHREAD_ONCE_INIT;

    begin(sequence);
    pthread_once(&once, report_once);
    KEEP_FRAME;
}

// Each of these leaves no trace of itself.

static step jump_on;

static NOINLINE void jump(unsigned long sequence, unsigned long depth)
{
    jump_on(sequence, depth * 2);
}

static NOINLINE void jump_on(unsigned long sequence, unsigned long depth)
{
    if (depth > 60)
        witness(sequence);
    else
        jump(sequence, depth + 1);
}

void through_tail_calls(unsigned long sequence)
{
    jump(sequence, sequence % 30);
    KEEP_FRAME;
}

// Not even of the situation.
void behind_tail_call(unsigned long sequence)
{
    witness(sequence);
}

static __thread jmp_buf way_back;

static NOINLINE __attribute__((noreturn)) void never_return(unsigned long sequence)
{
    witness(sequence);
    longjmp(way_back, 1);
}

// Ends with a call that does not return: the return address belongs to whatever comes next in memory.
static NOINLINE __attribute__((noreturn)) void end_with_call(unsigned long sequence)
{
    volatile char frame[40];

    frame[0] = sequence;
    never_return(sequence + 0 * frame[0]);
}

void without_return(unsigned long sequence)
{
    if (setjmp(way_back) == 0)
        end_with_call(sequence);
}

static NOINLINE __attribute__((cold)) void report_trouble(unsigned long sequence)
{
    witness(sequence);
    KEEP_FRAME;
}

// The compiler puts what it believes not to happen far from the rest of the function.
static NOINLINE int check(unsigned long sequence, int value)
{
    volatile int frame[10] = {value};

    if (__builtin_expect(frame[0] >= 0, 0)) {
        report_trouble(sequence);
        return frame[1];
    }
    return value * 2;
}

void in_unlikely_code(unsigned long sequence)
{
    check(sequence, sequence % 1000);
    KEEP_FRAME;
}
