// SPDX-License-Identifier: Apache-2.0
//
// Faults in which the dispatch thread waits for the disk or for memory.
#define _GNU_SOURCE
#include "scenario.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t FILE_BYTES = 64 * MIB, PAGE = 4 * KIB;

static int file;
static uint64_t random_state;

// Reads past the page cache, or what the page cache has.

static void prepare_direct(void)
{
    file = open_scratch_file(FILE_BYTES, !options.healthy);
}

static NOINLINE void read_input(struct dispatcher *dispatcher, uint64_t ns)
{
    static char block[256 * 1024];

    (void)dispatcher;
    if (!options.healthy)
        read_directly(file, FILE_BYTES, ns); // blame: direct-read
    else if (pread(file, block, sizeof(block), 0) != sizeof(block))
        fail("cannot read a scratch file");
}

const struct fault direct_read = {
    .name = "direct-read", .may_spin = true, .prepare = prepare_direct, .hit = read_input};

// A few small reads, which are slow only because a peer keeps the disk busy.

enum { SMALL_READS = 4 };

static void prepare_small_reads(void)
{
    file = open_scratch_file(FILE_BYTES, true);
}

static NOINLINE void read_little(struct dispatcher *dispatcher, uint64_t ns)
{
    static void *block;

    (void)dispatcher, (void)ns;
    if (!block)
        block = page_aligned(PAGE);
    for (int i = 0; i < SMALL_READS; i++)
        read_block(file, FILE_BYTES, block, PAGE, &random_state); // victim: disk-hog
}

const struct fault disk_hog = {
    .name = "disk-hog", .draw = draw_one_piece, .prepare = prepare_small_reads, .hit = read_little};

// Pages of a mapped file, which are in memory or not.

enum { WARM_PAGES = 64 };

static const volatile char *mapping;

static void prepare_mapping(void)
{
    file = open_scratch_file(FILE_BYTES, false);
    mapping = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, file, 0);
    if (mapping == MAP_FAILED || madvise((void *)mapping, FILE_BYTES, MADV_RANDOM) != 0)
        fail("cannot map a scratch file");
}

static NOINLINE void touch_page(size_t index)
{
    size_t page = index % (FILE_BYTES / PAGE);

    (void)mapping[page * PAGE]; // blame: mapped-file
}

static NOINLINE void touch_pages(struct dispatcher *dispatcher, uint64_t ns)
{
    uint64_t end = monotonic_ns() + ns;

    (void)dispatcher;
    if (options.healthy)
        for (size_t i = 0; i < WARM_PAGES; i++)
            touch_page(i);
    else
        while (monotonic_ns() < end)
            touch_page(draw(&random_state)); // blame: mapped-file
}

static void drop_pages(struct dispatcher *dispatcher)
{
    (void)dispatcher;
    if (options.healthy)
        return;
    madvise((void *)mapping, FILE_BYTES, MADV_DONTNEED);
    posix_fadvise(file, 0, FILE_BYTES, POSIX_FADV_DONTNEED);
}

const struct fault mapped_file = {
    .name = "mapped-file", .may_spin = true, .prepare = prepare_mapping, .hit = touch_pages, .end_step = drop_pages};

// Writes to a file, for which a control group with little memory has to take back the pages of the writes before.

static const size_t BYTES_PER_MS = 1536 * KIB;

static void prepare_writes(void)
{
    file = open_scratch_file(FILE_BYTES, false);
}

static NOINLINE void write_log(struct dispatcher *dispatcher, uint64_t ns)
{
    static char block[256 * 1024];
    static off_t offset;

    (void)dispatcher;
    for (size_t left = ns / MS * BYTES_PER_MS / sizeof(block); left > 0; left--) {
        if (pwrite(file, block, sizeof(block), offset) != sizeof(block)) // blame: memory-limit
            fail("cannot write a scratch file");
        offset = (offset + sizeof(block)) % FILE_BYTES;
    }
}

const struct fault memory_limit = {
    .name = "memory-limit", .is_in_cgroup = true, .draw = draw_one_piece, .prepare = prepare_writes, .hit = write_log};
