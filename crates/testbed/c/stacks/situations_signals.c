// SPDX-License-Identifier: Apache-2.0
//
// Stacks that a signal has put a frame on, and stacks that are not the main thread's.
#define _GNU_SOURCE
#include "situations.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile unsigned long current;
static volatile int was_hit;

static void handle(int number)
{
    (void)number;
    witness(current);
    was_hit = 1;
}

static void expect_signal(int number, void (*handler)(int), int flags, unsigned long sequence)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

    current = sequence;
    was_hit = 0;
    if (sigaction(number, &action, NULL) != 0)
        abort();
}

static NOINLINE void raise_deep_down(int depth)
{
    if (depth == 0)
        raise(SIGUSR1);
    else
        raise_deep_down(depth - 1);
    KEEP_FRAME;
}

void in_signal_handler(unsigned long sequence)
{
    expect_signal(SIGUSR1, handle, 0, sequence);
    raise_deep_down(sequence % 17);
    KEEP_FRAME;
}

void on_signal_stack(unsigned long sequence)
{
    static char memory[64 * 1024];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)}, none = {.ss_flags = SS_DISABLE};

    if (sigaltstack(&stack, NULL) != 0)
        abort();
    expect_signal(SIGUSR1, handle, SA_ONSTACK, sequence);
    raise_deep_down(sequence % 17);
    sigaltstack(&none, NULL);
}

static NOINLINE int compute(int depth, int value)
{
    if (depth > 0)
        value += compute(depth - 1, value * 3);
    return value ^ depth;
}

// The signal may come at any instruction, before a frame is complete and after it is gone.
static NOINLINE int compute_until_hit(int depth)
{
    int value = 1;

    while (!was_hit)
        value += compute(depth, value);
    return value;
}

void in_timer_signal(unsigned long sequence)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct itimerspec soon = {.it_value.tv_nsec = 20000 + sequence % 1000};
    timer_t timer;

    expect_signal(SIGALRM, handle, 0, sequence);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &soon, NULL) != 0)
        abort();
    compute_until_hit(sequence % 11);
    timer_delete(timer);
}

static char *forbidden;

static void allow(int number)
{
    handle(number);
    mprotect(forbidden, 4096, PROT_READ | PROT_WRITE);
}

static NOINLINE int write_forbidden(int depth)
{
    if (depth > 0)
        return 1 + write_forbidden(depth - 1);
    *(volatile char *)forbidden = 1;
    return 1;
}

void in_fault_handler(unsigned long sequence)
{
    forbidden = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (forbidden == MAP_FAILED)
        abort();
    expect_signal(SIGSEGV, allow, 0, sequence);
    write_forbidden(sequence % 7);
    signal(SIGSEGV, SIG_DFL);
    munmap(forbidden, 4096);
}

static void *run_situation(void *sequence)
{
    witness((unsigned long)sequence);
    return NULL;
}

static void *run_recursion(void *sequence)
{
    in_recursion((unsigned long)sequence);
    return NULL;
}

static void run_in_thread(void *(*run)(void *), unsigned long sequence)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, run, (void *)sequence) != 0 || pthread_join(thread, NULL) != 0)
        abort();
}

void in_thread(unsigned long sequence)
{
    run_in_thread(run_situation, sequence);
    KEEP_FRAME;
}

void in_deep_thread(unsigned long sequence)
{
    run_in_thread(run_recursion, sequence);
    KEEP_FRAME;
}

static void run_coroutine(void)
{
    in_recursion(current);
    KEEP_FRAME;
}

// A stack of which nobody has told the kernel.
void in_coroutine(unsigned long sequence)
{
    static char memory[256 * 1024];
    ucontext_t here, there;

    current = sequence;
    getcontext(&there);
    there.uc_stack = (stack_t){.ss_sp = memory, .ss_size = sizeof(memory)};
    there.uc_link = &here;
    makecontext(&there, run_coroutine, 0);
    swapcontext(&here, &there);
}
