// SPDX-License-Identifier: Apache-2.0
//
// Times one call in a tight loop: of the driver, or with --collectives of libnccl. Each line "round N" on stdin makes
// every thread call N times; the answer is a JSON object with the cost of a call in thread CPU time. Between rounds a
// tracer can attach and detach.
//
//     bench_calls [--threads N | --collectives]
#define _GNU_SOURCE
#include "fake_nccl.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 64 };

int cuLaunchKernel(uint64_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, uint64_t stream, void **params, void **extra);

static pthread_barrier_t start, end;
static uint64_t calls_per_round;
static double ns_per_call[MAX_THREADS];

// Programs that want none do without the library.
static struct {
    __typeof__(&ncclCommInitAll) init_all;
    __typeof__(&ncclAllReduce) all_reduce;
    __typeof__(&ncclCommDestroy) destroy;
} nccl;

static uint64_t thread_cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void launch(void)
{
    for (uint64_t i = 0; i < calls_per_round; i++)
        cuLaunchKernel(0x5eed0001, 1, 1, 1, 256, 1, 1, 0, 0x57ea0001, NULL, NULL);
}

// A communicator is known to a tracer that has seen it being made.
static void reduce(void)
{
    ncclComm_t comm;

    nccl.init_all(&comm, 1, NULL);
    for (uint64_t i = 0; i < calls_per_round; i++)
        nccl.all_reduce(NULL, NULL, 1000, ncclFloat32, ncclSum, comm, NULL);
    nccl.destroy(comm);
}

static int load_nccl(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW);

    if (!library)
        return -1;
    nccl.init_all = dlsym(library, "ncclCommInitAll");
    nccl.all_reduce = dlsym(library, "ncclAllReduce");
    nccl.destroy = dlsym(library, "ncclCommDestroy");
    return 0;
}

static void *run_thread(void *argument)
{
    double *result = argument;

    for (;;) {
        uint64_t before;

        pthread_barrier_wait(&start);
        before = thread_cpu_ns();
        if (nccl.all_reduce)
            reduce();
        else
            launch();
        *result = (double)(thread_cpu_ns() - before) / calls_per_round;
        pthread_barrier_wait(&end);
    }
    return NULL;
}

static void print_round(int round, int threads)
{
    double sum = 0;

    for (int i = 0; i < threads; i++)
        sum += ns_per_call[i];
    printf("{\"round\":%d,\"threads\":%d,\"calls\":%" PRIu64 ",\"ns_per_call\":%.2f,\"by_thread\":[", round, threads,
           calls_per_round, sum / threads);
    for (int i = 0; i < threads; i++)
        printf("%s%.2f", i ? "," : "", ns_per_call[i]);
    printf("]}\n");
    fflush(stdout);
}

static void start_threads(int threads)
{
    pthread_barrier_init(&start, NULL, threads + 1);
    pthread_barrier_init(&end, NULL, threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, run_thread, &ns_per_call[i]) != 0)
            exit(2);
    }
}

int main(int argc, char **argv)
{
    int threads = argc == 3 && strcmp(argv[1], "--threads") == 0 ? atoi(argv[2]) : 1;
    char line[64];

    if (threads < 1 || threads > MAX_THREADS)
        return 2;
    if (argc == 2 && strcmp(argv[1], "--collectives") == 0 && load_nccl())
        return 2;
    start_threads(threads);
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (int round = 0; fgets(line, sizeof(line), stdin); round++) {
        if (sscanf(line, "round %" SCNu64, &calls_per_round) != 1 || calls_per_round == 0)
            return 2;
        pthread_barrier_wait(&start);
        pthread_barrier_wait(&end);
        print_round(round, threads);
    }
    return 0;
}
