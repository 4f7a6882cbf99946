// SPDX-License-Identifier: Apache-2.0
//
// Threads that work and launch in turn: left alone, each launches about --rate times a second. How much work lies
// between two launches is fixed at the start, so what a tracer takes makes the loop slower and is not made up for.
//
// "go" on stdin starts the threads; "slice MS" looks at them for that long without stopping them and answers with a
// line of JSON; at the end of the input they stop, and the program says what they did.
#define _GNU_SOURCE
#include "launch_loop.h"

#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_THREADS = 64 };
enum flag { THREADS = 1, RATE, BIMODAL, SLOW_OP, SLOW_EVERY, SLOW_NS };

int cuLaunchKernel(uint64_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, uint64_t stream, void **params, void **extra);

// Only its own thread writes to it; the counters are read from outside while it runs.
struct worker {
    _Alignas(64) atomic_uint_fast64_t chunks;
    atomic_uint_fast64_t calls;
    uint64_t slow_calls, random;
    atomic_int tid;
    pthread_t thread;
    clockid_t cpu_clock;
    struct walk walk;
};

struct snapshot {
    uint64_t wall_ns;
    struct {
        uint64_t chunks, calls, cpu_ns;
    } threads[MAX_THREADS];
};

static struct {
    int threads;
    double rate;
    double slow_share; // --bimodal SHARE:NS
    uint64_t slow_launch_ns;
    const char *slow_op;
    uint64_t slow_every_ms, slow_ns;
} options = {.threads = 1, .rate = 1000, .slow_every_ms = 100, .slow_ns = 1000000};

static struct worker workers[MAX_THREADS];
static struct amount amount;
static atomic_bool is_over;

static void fail(const char *what)
{
    fprintf(stderr, "launch_loop: %s\n", what);
    exit(2);
}

// No other thread writes, so that a load and a store do.
static void count(atomic_uint_fast64_t *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

static void *run_worker(void *argument)
{
    struct worker *worker = argument;

    worker->random = 0x9e3779b97f4a7c15 * (worker - workers + 1);
    worker->tid = gettid();
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        for (uint64_t i = 0; i < amount.chunks; i++) {
            take_steps(&worker->walk, amount.steps_per_chunk);
            count(&worker->chunks);
        }
        if (options.slow_share > 0)
            worker->slow_calls += next_launch_is_slow(&worker->random);
        cuLaunchKernel(0x5eed0001, 1, 1, 1, 256, 1, 1, 0, 0x57ea0001, NULL, NULL);
        count(&worker->calls);
    }
    return NULL;
}

static void go(void)
{
    if (options.slow_share > 0)
        plan_slow_launches(options.slow_share, options.slow_launch_ns);
    for (int i = 0; i < options.threads; i++)
        if (pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]) != 0 ||
            pthread_getcpuclockid(workers[i].thread, &workers[i].cpu_clock) != 0)
            fail("cannot start a thread");
    if (options.slow_op)
        start_slow_op(options.slow_op, options.slow_every_ms * 1000000, options.slow_ns);
}

static void take_snapshot(struct snapshot *snapshot)
{
    snapshot->wall_ns = clock_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < options.threads; i++) {
        snapshot->threads[i].chunks = workers[i].chunks;
        snapshot->threads[i].calls = workers[i].calls;
        snapshot->threads[i].cpu_ns = clock_ns(workers[i].cpu_clock);
    }
}

// A round is one piece of work and one launch; it counts in parts, since a slice holds few of the longest ones.
static void print_slice(const struct snapshot *before, const struct snapshot *after)
{
    printf("{\"wall_ns\":%" PRIu64 ",\"threads\":[", after->wall_ns - before->wall_ns);
    for (int i = 0; i < options.threads; i++)
        printf("%s{\"calls\":%" PRIu64 ",\"rounds\":%.4f,\"cpu_ns\":%" PRIu64 "}", i ? "," : "",
               after->threads[i].calls - before->threads[i].calls,
               (double)(after->threads[i].chunks - before->threads[i].chunks) / amount.chunks,
               after->threads[i].cpu_ns - before->threads[i].cpu_ns);
    printf("]}\n");
    fflush(stdout);
}

static void measure_slice(uint64_t ms)
{
    struct timespec length = {ms / 1000, ms % 1000 * 1000000};
    struct snapshot before, after;

    take_snapshot(&before);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &length, NULL);
    take_snapshot(&after);
    print_slice(&before, &after);
}

static void finish(void)
{
    is_over = true;
    for (int i = 0; i < options.threads; i++) {
        pthread_join(workers[i].thread, NULL);
        printf("{\"kind\":\"thread\",\"tid\":%d,\"calls\":%" PRIu64 ",\"slow_calls\":%" PRIu64 "}\n", workers[i].tid,
               (uint64_t)workers[i].calls, workers[i].slow_calls);
    }
    finish_slow_op();
}

static void apply(int option, char *value)
{
    switch (option) {
    case THREADS:
        options.threads = atoi(value);
        break;
    case RATE:
        options.rate = atof(value);
        break;
    case BIMODAL:
        if (sscanf(value, "%lf:%" SCNu64, &options.slow_share, &options.slow_launch_ns) != 2)
            fail("--bimodal takes SHARE:NS");
        break;
    case SLOW_OP:
        options.slow_op = value;
        break;
    case SLOW_EVERY:
        options.slow_every_ms = strtoull(value, NULL, 10);
        break;
    case SLOW_NS:
        options.slow_ns = strtoull(value, NULL, 10);
        break;
    default:
        exit(2);
    }
}

static void parse_options(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"threads", required_argument, NULL, THREADS},
        {"rate", required_argument, NULL, RATE},
        {"bimodal", required_argument, NULL, BIMODAL},
        {"slow-op", required_argument, NULL, SLOW_OP},
        {"slow-every", required_argument, NULL, SLOW_EVERY},
        {"slow-ns", required_argument, NULL, SLOW_NS},
        {0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1)
        apply(option, optarg);
    if (optind < argc || options.threads < 1 || options.threads > MAX_THREADS || options.rate <= 0)
        fail("an argument is unknown or out of range");
}

int main(int argc, char **argv)
{
    char line[64];
    uint64_t ms;
    bool has_gone = false;

    parse_options(argc, argv);
    amount = amount_for(options.rate);
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (!has_gone && strcmp(line, "go\n") == 0)
            go();
        else if (has_gone && sscanf(line, "slice %" SCNu64, &ms) == 1)
            measure_slice(ms);
        else
            fail("unknown command");
        has_gone = true;
    }
    if (has_gone)
        finish();
    return 0;
}
