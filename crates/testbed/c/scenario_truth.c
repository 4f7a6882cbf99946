// SPDX-License-Identifier: Apache-2.0
//
// What the program says about itself, one JSON object a line.
#define _GNU_SOURCE
#include "scenario.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

// Both may be called while other threads do the same.
void blame_thread(int tid)
{
    printf("{\"kind\":\"blame\",\"pid\":%d,\"tid\":%d}\n", getpid(), tid);
    fflush(stdout);
}

void blame_process(int pid)
{
    printf("{\"kind\":\"blame\",\"pid\":%d}\n", pid);
    fflush(stdout);
}

// How long the calling thread has waited for a CPU. Not every kernel keeps that.
static uint64_t run_queue_ns(void)
{
    uint64_t running, waiting = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "r");

    if (!file)
        return 0;
    if (fscanf(file, "%" SCNu64 " %" SCNu64, &running, &waiting) != 2)
        waiting = 0;
    fclose(file);
    return waiting;
}

// In the dispatcher's own thread, when it has made its last step.
void observe_thread(struct dispatcher *dispatcher)
{
    struct rusage usage;

    getrusage(RUSAGE_THREAD, &usage);
    dispatcher->major_faults = usage.ru_majflt;
    dispatcher->involuntary_switches = usage.ru_nivcsw;
    dispatcher->run_queue_ns = run_queue_ns();
}

static void print_dispatcher(const struct dispatcher *dispatcher)
{
    printf("{\"kind\":\"thread\",\"tid\":%d,\"is_victim\":%s,\"steps\":%" PRIu64 ",\"fault_ns\":%" PRIu64,
           dispatcher->tid, dispatcher->is_victim ? "true" : "false", dispatcher->steps, dispatcher->fault_ns);
    printf(",\"major_faults\":%" PRIu64 ",\"involuntary_switches\":%" PRIu64 ",\"run_queue_ns\":%" PRIu64 "}\n",
           dispatcher->major_faults, dispatcher->involuntary_switches, dispatcher->run_queue_ns);
}

// A number in a file of the control group: the one after the word, or the only one. 0 when there is none.
static uint64_t number_in(const char *name, const char *word)
{
    char path[512], found[64] = "";
    uint64_t number = 0;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", options.cgroup, name);
    file = fopen(path, "r");
    if (!file)
        return 0;
    if (!word && fscanf(file, "%" SCNu64, &number) != 1)
        number = 0;
    while (word && strcmp(found, word) != 0)
        if (fscanf(file, "%63s %" SCNu64, found, &number) != 2)
            break;
    fclose(file);
    return word && strcmp(found, word) != 0 ? 0 : number;
}

// How often the limit of the control group stopped someone, in either version of control groups.
static uint64_t limit_hits(void)
{
    if (!options.cgroup)
        return 0;
    return number_in("cpu.stat", "nr_throttled") + number_in("memory.failcnt", NULL) +
           number_in("memory.events", "max");
}

void print_truth(const struct dispatcher *dispatchers, int count, uint64_t elapsed_ns)
{
    for (int i = 0; i < count; i++)
        print_dispatcher(&dispatchers[i]);
    printf("{\"kind\":\"end\",\"elapsed_ns\":%" PRIu64 ",\"limit_hits\":%" PRIu64 "}\n", elapsed_ns, limit_hits());
    fflush(stdout);
}
