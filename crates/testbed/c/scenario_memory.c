// SPDX-License-Identifier: Apache-2.0
//
// Faults in how the program uses the GPU's memory.
#define _GNU_SOURCE
#include "scenario.h"

static const uint64_t CALL_NS = 200 * US; // of an allocation or a release, as a busy driver takes it
static const int OUT_OF_MEMORY = 2;

// Allocates and frees again and again in every step.

static void prepare_slow_calls(void)
{
    fake_cuda_set("cuMemAlloc", FAKE_BURN, CALL_NS, 0);
    fake_cuda_set("cuMemFree", FAKE_BURN, CALL_NS, 0);
}

static void allocate_once(struct dispatcher *dispatcher)
{
    uint64_t memory;

    (void)dispatcher;
    cuMemAlloc_v2(&memory, 64 * MIB);
}

static NOINLINE void allocate_and_free(struct dispatcher *dispatcher, uint64_t ns)
{
    uint64_t memory;

    (void)dispatcher;
    if (options.healthy)
        return;
    for (uint64_t done = 0; done < ns; done += 2 * CALL_NS) {
        cuMemAlloc_v2(&memory, 4 * MIB); // blame: malloc-per-step
        cuMemFree_v2(memory);            // blame: malloc-per-step
    }
}

const struct fault malloc_per_step = {.name = "malloc-per-step",
                                      .may_spin = true,
                                      .prepare = prepare_slow_calls,
                                      .set_up = allocate_once,
                                      .hit = allocate_and_free};

// Now and then there is no memory left; the program frees what it kept and tries again.

enum { KEPT = 4, STEPS_TO_FAILURE = 5 };

static uint64_t kept[KEPT];

static void allocate_kept(struct dispatcher *dispatcher)
{
    (void)dispatcher;
    for (int i = 0; i < KEPT; i++)
        cuMemAlloc_v2(&kept[i], 256 * MIB);
}

static void free_kept(void)
{
    for (int i = 0; i < KEPT; i++)
        cuMemFree_v2(kept[i]);
}

static NOINLINE void run_out_of_memory(struct dispatcher *dispatcher, uint64_t ns)
{
    uint64_t memory;

    if (options.healthy || dispatcher->steps % STEPS_TO_FAILURE != STEPS_TO_FAILURE - 1)
        return;
    fake_cuda_set("cuMemAlloc", FAKE_BURN, ns, OUT_OF_MEMORY);
    cuMemAlloc_v2(&memory, 2048 * MIB); // blame: out-of-memory
    fake_cuda_set("cuMemAlloc", FAKE_BURN, 20 * US, 0);
    free_kept();
    cuMemAlloc_v2(&memory, 2048 * MIB);
    cuMemFree_v2(memory);
    allocate_kept(dispatcher);
}

const struct fault out_of_memory = {.name = "out-of-memory",
                                    .may_spin = true,
                                    .draw = draw_one_piece,
                                    .set_up = allocate_kept,
                                    .hit = run_out_of_memory};

// Allocates in every step what only the healthy program frees.

static NOINLINE void allocate_one_more(struct dispatcher *dispatcher)
{
    uint64_t memory;

    (void)dispatcher;
    cuMemAlloc_v2(&memory, 4 * MIB); // blame: leak
    if (options.healthy)
        cuMemFree_v2(memory);
}

const struct fault leak = {.name = "leak", .may_spin = true, .end_step = allocate_one_more};
