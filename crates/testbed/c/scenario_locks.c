// SPDX-License-Identifier: Apache-2.0
//
// Faults in which another thread of the process keeps the dispatch thread waiting: one that holds a lock while it does
// something else, and one that makes the batches too slowly.
#define _GNU_SOURCE
#include "scenario.h"

#include <unistd.h>

static const size_t FILE_BYTES = 32 * MIB;
static const uint64_t GAP_NS = 300 * US;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shape shape; // of the victim
static int file;

// The other thread keeps in step with the victim.
static void draw_and_remember(struct shape *victims)
{
    draw_one_piece(victims);
    shape = *victims;
}

static NOINLINE void hold_lock_and(void (*occupy)(uint64_t ns))
{
    // The victim gets the lock in the gap. The next one comes when its step and the fault's share are over.
    uint64_t random = options.seed, step_ns = shape.gpu_ns + shape.host_ns / shape.launches + shape.fault_ns - GAP_NS;

    blame_thread(gettid());
    while (!is_over()) {
        uint64_t ns = step_ns * draw_between(&random, 0.9, 1.1);

        if (!options.healthy)
            pthread_mutex_lock(&lock);
        occupy(ns); // blame: mutex-holder mutex-sleeper mutex-io-holder
        if (options.healthy)
            pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock); // blame: mutex-holder mutex-sleeper mutex-io-holder
        sleep_ns(GAP_NS);
    }
}

static NOINLINE void take_lock(struct dispatcher *dispatcher, uint64_t ns)
{
    (void)dispatcher, (void)ns;
    pthread_mutex_lock(&lock); // victim: mutex-holder mutex-sleeper mutex-io-holder
    burn_ns(5 * US);
    pthread_mutex_unlock(&lock);
}

static void *hold_and_burn(void *unused)
{
    hold_lock_and(burn_ns);
    return unused;
}

static void begin_burning(void)
{
    start_thread(hold_and_burn, "tokenizer");
}

const struct fault mutex_holder = {
    .name = "mutex-holder", .draw = draw_and_remember, .begin = begin_burning, .hit = take_lock};

static void *hold_and_sleep(void *unused)
{
    hold_lock_and(sleep_ns);
    return unused;
}

static void begin_sleeping(void)
{
    start_thread(hold_and_sleep, "heartbeat");
}

const struct fault mutex_sleeper = {
    .name = "mutex-sleeper", .may_spin = true, .draw = draw_and_remember, .begin = begin_sleeping, .hit = take_lock};

static NOINLINE void read_for(uint64_t ns)
{
    read_directly(file, FILE_BYTES, ns); // blame: mutex-io-holder
}

static void *hold_and_read(void *unused)
{
    hold_lock_and(read_for);
    return unused;
}

static void prepare_file(void)
{
    file = open_scratch_file(FILE_BYTES, true);
}

static void begin_reading(void)
{
    start_thread(hold_and_read, "checkpoint");
}

const struct fault mutex_io_holder = {.name = "mutex-io-holder",
                                      .may_spin = true,
                                      .draw = draw_and_remember,
                                      .prepare = prepare_file,
                                      .begin = begin_reading,
                                      .hit = take_lock};

enum { QUEUE_LENGTH = 2 };

static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;
static int batches;

static NOINLINE void *make_batches(void *unused)
{
    uint64_t slow_ns = shape.gpu_ns + shape.fault_ns, random = options.seed;
    uint64_t batch_ns = options.healthy ? shape.gpu_ns / 3 : slow_ns;

    blame_thread(gettid());
    for (;;) {
        uint64_t ns = batch_ns * draw_between(&random, 0.9, 1.1);

        burn_ns(ns); // blame: slow-queue
        pthread_mutex_lock(&lock);
        while (batches == QUEUE_LENGTH)
            pthread_cond_wait(&not_full, &lock);
        batches++;
        pthread_cond_signal(&not_empty); // blame: slow-queue
        pthread_mutex_unlock(&lock);     // blame: slow-queue
    }
    return unused;
}

static NOINLINE void take_batch(struct dispatcher *dispatcher, uint64_t ns)
{
    (void)dispatcher, (void)ns;
    pthread_mutex_lock(&lock);
    while (batches == 0)
        pthread_cond_wait(&not_empty, &lock); // victim: slow-queue
    batches--;
    pthread_cond_signal(&not_full);
    pthread_mutex_unlock(&lock);
}

static void begin_making(void)
{
    start_thread(make_batches, "loader");
}

const struct fault slow_queue = {
    .name = "slow-queue", .draw = draw_and_remember, .begin = begin_making, .hit = take_batch};
