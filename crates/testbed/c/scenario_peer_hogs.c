// SPDX-License-Identifier: Apache-2.0
//
// Peers that take a CPU or the disk from others, and one that does no harm.
#define _GNU_SOURCE
#include "scenario_peer.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

static void get_ready(void)
{
    tell_ready("");
}

// On the CPU where the dispatch threads are.
static NOINLINE void burn_forever(void)
{
    pin_to_cpu(0);
    for (;;)
        burn_ns(MS); // blame: cpu-hog cpu-crowd
}

const struct role hog = {.name = "hog", .prepare = get_ready, .run = burn_forever};

// On another CPU, with less right to it than anyone else.
static void burn_now_and_then(void)
{
    uint64_t random = options.seed;

    pin_to_cpu(1);
    setpriority(PRIO_PROCESS, 0, 15);
    for (;;) {
        burn_ns(draw_between(&random, 1, 3) * MS);
        sleep_ns(draw_between(&random, 3, 6) * MS);
    }
}

const struct role background = {.name = "background", .prepare = get_ready, .run = burn_now_and_then};

// Enough large reads at once that a small one has to wait for milliseconds.

enum { READERS = 4 };

static const size_t FILE_BYTES = 64 * MIB;
static int file;

static void prepare_file(void)
{
    file = open_scratch_file(FILE_BYTES, true);
    tell_ready("");
}

static NOINLINE void *read_forever(void *random)
{
    void *block = page_aligned(MIB);

    for (;;)
        read_block(file, FILE_BYTES, block, MIB, random); // blame: disk-hog
    return NULL;
}

static void saturate_disk(void)
{
    static uint64_t random[READERS];
    pthread_t thread;

    for (int i = 1; i < READERS; i++) {
        random[i] = options.seed + i;
        if (pthread_create(&thread, NULL, read_forever, &random[i]) != 0)
            fail("cannot start a thread");
    }
    read_forever(&random[0]);
}

const struct role disk_hog = {.name = "disk-hog", .prepare = prepare_file, .run = saturate_disk};
