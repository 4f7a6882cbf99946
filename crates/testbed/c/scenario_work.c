// SPDX-License-Identifier: Apache-2.0
//
// Time, CPUs, and the line to whoever started the program: when that is closed, the program is to end.
#define _GNU_SOURCE
#include "scenario_work.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint64_t monotonic_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

void sleep_until(uint64_t deadline_ns)
{
    struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) == EINTR) // blame: mutex-sleeper
        ;
}

void sleep_ns(uint64_t ns)
{
    sleep_until(monotonic_ns() + ns);
}

// In CPU time, so that whoever is preempted does not do less.
void burn_ns(uint64_t ns)
{
    uint64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;

    // clang-format off
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end) // blame: cpu-hog cpu-crowd cpu-hog-threads mutex-holder slow-queue slow-pipe slow-peer app-computes
        for (volatile int i = 0; i < 1000; i++) // blame: cpu-hog cpu-crowd cpu-hog-threads mutex-holder slow-queue slow-pipe slow-peer app-computes
            ;
    // clang-format on
}

// To the CPU of this index among those it may use, counted from the end when they are fewer.
void pin_to_cpu(int index)
{
    cpu_set_t allowed, one;
    int cpu = 0;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        fail("cannot ask which CPUs may be used");
    for (int left = index % CPU_COUNT(&allowed);; cpu++)
        if (CPU_ISSET(cpu, &allowed) && left-- == 0)
            break;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0)
        fail("cannot choose a CPU");
}

static void *watch_stdin(void *unused)
{
    char byte;

    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    _exit(0);
    return unused;
}

void tell_ready(const char *more)
{
    printf("ready %d%s\n", getpid(), more);
    fflush(stdout);
}

// From "go" on, the end of the input ends the program, however busy it is.
void wait_for_go(void)
{
    char line[8] = "";
    pthread_t thread;

    for (size_t i = 0; i < sizeof(line) - 1 && !strchr(line, '\n'); i++)
        if (read(STDIN_FILENO, line + i, 1) != 1)
            exit(0);
    if (strcmp(line, "go\n") != 0)
        fail("the first line is not 'go'");
    if (pthread_create(&thread, NULL, watch_stdin, NULL) != 0)
        fail("cannot start a thread");
    pthread_detach(thread);
}

void fail(const char *what)
{
    fprintf(stderr, "scenario: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(2);
}
