// SPDX-License-Identifier: Apache-2.0
//
// What the kernel itself says of the calling thread. Tests hold a trace against this, and not against the wall clock:
// others may take the CPU, and a hypervisor may take it from all of them.
#define _GNU_SOURCE
#include "workload.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

// How long the thread has waited for a CPU. The file stays open: a look at it costs a microsecond.
static uint64_t run_queue_ns(void)
{
    static __thread int file = -1;
    char text[64] = "";
    uint64_t running, waiting;

    if (file < 0)
        file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (pread(file, text, sizeof(text) - 1, 0) < 0 || sscanf(text, "%" SCNu64 " %" SCNu64, &running, &waiting) != 2)
        fail("/proc/thread-self/schedstat", "cannot be read");
    return waiting;
}

struct clocks read_clocks(void)
{
    struct rusage usage;
    struct timespec cpu;

    getrusage(RUSAGE_THREAD, &usage);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    return (struct clocks){
        .cpu_ns = (uint64_t)cpu.tv_sec * 1000000000 + cpu.tv_nsec,
        .run_queue_ns = run_queue_ns(),
        .waits = usage.ru_nvcsw,
    };
}

struct clocks clocks_since(const struct clocks *before)
{
    struct clocks now = read_clocks();

    return (struct clocks){
        .cpu_ns = now.cpu_ns - before->cpu_ns,
        .run_queue_ns = now.run_queue_ns - before->run_queue_ns,
        .waits = now.waits - before->waits,
    };
}
