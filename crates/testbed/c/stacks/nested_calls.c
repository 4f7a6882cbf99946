// SPDX-License-Identifier: Apache-2.0
//
// Makes driver calls from a given number of nested functions: `nested_calls FUNCTIONS MILLISECONDS KILOBYTES`. The
// functions lie far apart in the program, as those of large programs do: where each frame ends has to be looked up
// anew. Before each call the program reads and writes so much memory, which takes the place of other things in the
// CPU's caches.
#include "../fake_cuda.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { CALL_NS = 50000, FUNCTIONS = 2048, APART = 797, MAX_NESTED = 120, CACHE_LINE = 64 };

int cuInit(unsigned flags);
int cuStreamSynchronize(uint64_t stream);

static uint64_t end_ns;
static volatile uint8_t *memory;
static size_t memory_bytes;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static __attribute__((noipa)) int call_until_the_end(int calls)
{
    while (now_ns() < end_ns) {
        for (size_t i = 0; i < memory_bytes; i += CACHE_LINE)
            memory[i]++;
        cuStreamSynchronize(1);
        calls++;
    }
    return calls;
}

typedef int nested_function(int depth);
static nested_function *volatile nested[FUNCTIONS];

static inline __attribute__((always_inline)) int go_on(int self, int depth)
{
    volatile int kept = self; // in the frame, so that the call is not the last thing and no two functions are the same

    return (depth > 1 ? nested[(self + APART) % FUNCTIONS](depth - 1) : call_until_the_end(0)) + kept;
}

// clang-format off
#define FUNCTION(number) \
    static __attribute__((noinline)) int nested_##number(int depth) { return go_on(0x##number, depth); }
#define NAME(number) nested_##number,
#define SIXTEEN(of, high) \
    of(high##0) of(high##1) of(high##2) of(high##3) of(high##4) of(high##5) of(high##6) of(high##7) \
    of(high##8) of(high##9) of(high##a) of(high##b) of(high##c) of(high##d) of(high##e) of(high##f)
#define MANY(of, high) \
    SIXTEEN(of, high##0) SIXTEEN(of, high##1) SIXTEEN(of, high##2) SIXTEEN(of, high##3) \
    SIXTEEN(of, high##4) SIXTEEN(of, high##5) SIXTEEN(of, high##6) SIXTEEN(of, high##7) \
    SIXTEEN(of, high##8) SIXTEEN(of, high##9) SIXTEEN(of, high##a) SIXTEEN(of, high##b) \
    SIXTEEN(of, high##c) SIXTEEN(of, high##d) SIXTEEN(of, high##e) SIXTEEN(of, high##f)
#define ALL(of) \
    MANY(of, 0) MANY(of, 1) MANY(of, 2) MANY(of, 3) MANY(of, 4) MANY(of, 5) MANY(of, 6) MANY(of, 7)
// clang-format on

ALL(FUNCTION)
static nested_function *volatile nested[FUNCTIONS] = {ALL(NAME)};

int main(int argc, char **argv)
{
    int depth = argc == 4 ? atoi(argv[1]) : 0, milliseconds = argc == 4 ? atoi(argv[2]) : 0;
    char byte;

    if (depth < 1 || depth > MAX_NESTED || milliseconds < 1) {
        fprintf(stderr, "usage: nested_calls FUNCTIONS MILLISECONDS KILOBYTES\n");
        return 2;
    }
    memory_bytes = strtoul(argv[3], NULL, 10) * 1024;
    if (memory_bytes > 0 && !(memory = calloc(1, memory_bytes)))
        return 2;
    cuInit(0);
    fake_cuda_set("cuStreamSynchronize", FAKE_BURN, CALL_NS, 0);
    printf("ready %d\n", getpid());
    fflush(stdout);
    if (read(STDIN_FILENO, &byte, 1) != 1)
        return 0;
    end_ns = now_ns() + milliseconds * 1000000ULL;
    return nested[0](depth) == 0;
}
