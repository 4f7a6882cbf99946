// SPDX-License-Identifier: Apache-2.0
//
// The reference for stacks. WITNESS_LOG names the file to write:
//
//     stack SEQUENCE TID IP IP ...     the callers of witness(), innermost first, in hexadecimal
//     maps                             at exit; then the lines of /proc/self/maps
//
// WITNESS_NS is how long each driver call takes: a millisecond if it is not set.
#define _GNU_SOURCE
#include "witness.h"

#include "../fake_cuda.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

enum { MAX_FRAMES = 4096, DEFAULT_NS = 1000000 };

int cuInit(unsigned flags);
int cuStreamSynchronize(uint64_t stream);

struct callers {
    int count;
    uintptr_t ips[MAX_FRAMES];
};

// The thread's own, not on its stack: a situation may have little of that. No signal comes while it is in use.
static __thread struct callers callers;
static __thread char text[MAX_FRAMES * 18 + 64];

static int log_file = -1;

static void fail(const char *what)
{
    fprintf(stderr, "witness: %s\n", what);
    exit(2);
}

__attribute__((constructor)) static void open_log(void)
{
    const char *path = getenv("WITNESS_LOG"), *ns = getenv("WITNESS_NS");

    if (!path || (log_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) < 0)
        fail("WITNESS_LOG names no file that can be written");
    cuInit(0);
    fake_cuda_set("cuStreamSynchronize", FAKE_SLEEP, ns ? strtoull(ns, NULL, 10) : DEFAULT_NS, 0);
}

__attribute__((destructor)) static void log_maps(void)
{
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    ssize_t got;

    if (maps < 0 || write(log_file, "maps\n", 5) != 5)
        return;
    while ((got = read(maps, text, sizeof(text))) > 0)
        if (write(log_file, text, got) != got)
            return;
    close(maps);
}

// The unwinder ends with a frame that has no address.
static _Unwind_Reason_Code keep(struct _Unwind_Context *context, void *unused)
{
    uintptr_t ip = _Unwind_GetIP(context);

    (void)unused;
    if (ip != 0 && callers.count < MAX_FRAMES)
        callers.ips[callers.count++] = ip;
    return _URC_NO_REASON;
}

// printf may not be called in a signal handler.
static char *put(char *at, const char *before, unsigned long number, int base)
{
    char digits[24];
    int count = 0;

    at = stpcpy(at, before);
    do
        digits[count++] = "0123456789abcdef"[number % base];
    while ((number /= base) > 0);
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

// One write, so that threads do not mix their lines. The first address is that of witness() itself.
static void log_callers(unsigned long sequence)
{
    char *end = put(text, "stack ", sequence, 10);

    end = put(end, " ", gettid(), 10);
    for (int i = 1; i < callers.count; i++)
        end = put(end, " ", callers.ips[i], 16);
    *end++ = '\n';
    if (write(log_file, text, end - text) != end - text)
        abort();
}

void witness(unsigned long sequence)
{
    callers.count = 0;
    _Unwind_Backtrace(keep, NULL);
    log_callers(sequence);
    cuStreamSynchronize(sequence);
    __asm__ volatile(""); // the call above is not the last thing, so that it is no jump
}

void witness_start(void)
{
    char line[8] = "";

    printf("ready %d\n", getpid());
    fflush(stdout);
    for (size_t i = 0; i < sizeof(line) - 1 && !strchr(line, '\n'); i++)
        if (read(STDIN_FILENO, line + i, 1) != 1)
            exit(0);
    if (strcmp(line, "go\n") != 0)
        fail("the first line is not 'go'");
}

void witness_finish(void)
{
    char byte;

    printf("done %d\n", getpid());
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
}
