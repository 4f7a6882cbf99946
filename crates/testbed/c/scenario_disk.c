// SPDX-License-Identifier: Apache-2.0
//
// Files that no one else sees and that are gone with the process, and reads that no cache answers.
#define _GNU_SOURCE
#include "scenario_work.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

static const size_t BLOCK = 512 * KIB;

void *page_aligned(size_t bytes)
{
    void *memory;

    if (posix_memalign(&memory, 4 * KIB, bytes) != 0)
        fail("out of memory");
    memset(memory, 1, bytes);
    return memory;
}

static void fill(int file, size_t bytes)
{
    char *block = page_aligned(MIB);

    for (size_t done = 0; done < bytes; done += MIB)
        if (write(file, block, MIB) != (ssize_t)MIB)
            fail("cannot write a scratch file");
    if (fdatasync(file) != 0 || posix_fadvise(file, 0, bytes, POSIX_FADV_DONTNEED) != 0)
        fail("cannot write a scratch file to the disk");
    free(block);
}

static void insist_on_disk(int file)
{
    struct statfs system;

    if (fstatfs(file, &system) != 0 || system.f_type == TMPFS_MAGIC)
        fail("the folder for scratch files is not on a disk; FAKE_CUDA_IO_DIR names another one");
}

// `bytes` counts in whole MiB.
int open_scratch_file(size_t bytes, bool direct)
{
    const char *folder = getenv("FAKE_CUDA_IO_DIR");
    char path[512];
    int file, reopened;

    snprintf(path, sizeof(path), "%s/gpuwhy-scenario-XXXXXX", folder ? folder : "/var/tmp");
    file = mkostemp(path, O_CLOEXEC);
    if (file < 0)
        fail("cannot make a scratch file");
    unlink(path);
    insist_on_disk(file);
    if (bytes > 0)
        fill(file, bytes);
    if (!direct)
        return file;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    reopened = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (reopened < 0)
        fail("the scratch file's file system knows no O_DIRECT");
    close(file);
    return reopened;
}

void read_block(int file, size_t file_bytes, void *block, size_t block_bytes, uint64_t *random)
{
    off_t offset = draw(random) % (file_bytes / block_bytes) * block_bytes;

    // clang-format off
    if (pread(file, block, block_bytes, offset) != (ssize_t)block_bytes) // blame: direct-read slow-worker-io mutex-io-holder disk-hog
        // clang-format on
        fail("cannot read a scratch file");
}

// Until the time is over: blocks large enough that nearly all of it is the disk's.
void read_directly(int file, size_t file_bytes, uint64_t ns)
{
    static __thread void *block;
    static __thread uint64_t random;
    uint64_t end = monotonic_ns() + ns;

    if (!block)
        block = page_aligned(BLOCK);
    while (monotonic_ns() < end)
        read_block(file, file_bytes, block, BLOCK, &random);
}
