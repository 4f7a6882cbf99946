// SPDX-License-Identifier: Apache-2.0
//
// What the workload did, one JSON object a line.
#define _GNU_SOURCE
#include "workload.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// How many times this process has replaced its own image.
static int image(void)
{
    const char *text = getenv("WORKLOAD_IMAGE");

    return text ? atoi(text) : 0;
}

static void print_calls(const struct caller *caller, const struct op *op, const struct tally *tally)
{
    printf("{\"kind\":\"calls\",\"pid\":%d,\"tid\":%d,\"image\":%d,\"thread\":%d,\"device\":%d,\"stream\":%" PRIu64
           ",\"releaser_tid\":%d,",
           getpid(), caller->tid, image(), caller->index, caller->device, caller->stream, caller->releaser_tid);
    printf("\"layer\":\"%s\",\"op\":\"%s\",", op->inner ? "runtime" : "driver", op->name);
    if (op->inner)
        printf("\"inner\":\"%s\",", op->inner);
    printf("\"calls\":%" PRIu64 ",\"abandoned\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"bytes\":%" PRIu64, tally->calls,
           tally->abandoned, tally->errors, tally->calls * op->bytes);
    printf(",\"wall_ns\":%" PRIu64 ",\"first_ns\":%" PRIu64 ",\"last_ns\":%" PRIu64, tally->wall_ns, tally->first_ns,
           tally->last_ns);
    printf(",\"cpu_ns\":%" PRIu64 ",\"run_queue_ns\":%" PRIu64 ",\"waiting_calls\":%" PRIu64 "}\n", tally->cpu_ns,
           tally->run_queue_ns, tally->waiting_calls);
}

static void print_clocks(const struct caller *caller)
{
    printf("{\"kind\":\"clocks\",\"tid\":%d,\"cpu_ns\":%" PRIu64 ",\"run_queue_ns\":%" PRIu64 "}\n", caller->tid,
           caller->clocks.cpu_ns, caller->clocks.run_queue_ns);
}

void print_truth(const struct caller *callers, int count, uint64_t elapsed_ns)
{
    uint64_t calls = 0;
    int child_pid = 0;

    for (int i = 0; i < count; i++) {
        for (int op = 0; op < op_count; op++) {
            const struct tally *tally = &callers[i].tallies[op];

            if (tally->calls + tally->abandoned > 0)
                print_calls(&callers[i], &ops[op], tally);
            calls += tally->calls;
        }
        if (options.clocks)
            print_clocks(&callers[i]);
        if (callers[i].child_pid > 0)
            child_pid = callers[i].child_pid;
    }
    printf("{\"kind\":\"end\",\"pid\":%d,\"image\":%d,\"threads\":%d,\"calls\":%" PRIu64 ",\"elapsed_ns\":%" PRIu64,
           getpid(), image(), count, calls, elapsed_ns);
    if (child_pid)
        printf(",\"child_pid\":%d", child_pid);
    printf("}\n");
    fflush(stdout);
}
