// SPDX-License-Identifier: Apache-2.0
//
// Blocking on a futex, on a pipe and on the disk. Each calling thread has one releaser, a thread that sleeps until the
// wait should end and then ends it, so that the waker of every wait is known.
#define _GNU_SOURCE
#include "fake_waits.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 4096 };

struct releaser {
    uint32_t requests; // futex: counts up when a wait begins
    uint32_t released; // futex: 1 when the wait is over
    uint64_t deadline_ns;
    int uses_pipe;
    int pipe_ends[2];
    int tid;
};

static __thread struct releaser *my_releaser;

uint64_t monotonic_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void sleep_until(uint64_t deadline_ns)
{
    struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) == EINTR)
        ;
}

static void futex_wait(uint32_t *word, uint32_t while_value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_value, NULL, NULL, 0);
}

static void futex_wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void release(struct releaser *releaser)
{
    if (releaser->uses_pipe) {
        if (write(releaser->pipe_ends[1], "x", 1) != 1)
            abort();
        return;
    }
    __atomic_store_n(&releaser->released, 1, __ATOMIC_RELEASE);
    futex_wake(&releaser->released);
}

static void *run_releaser(void *argument)
{
    struct releaser *releaser = argument;
    uint32_t served = 0;

    pthread_setname_np(pthread_self(), "fake-releaser");
    __atomic_store_n(&releaser->tid, gettid(), __ATOMIC_RELEASE);
    for (;;) {
        while (__atomic_load_n(&releaser->requests, __ATOMIC_ACQUIRE) == served)
            futex_wait(&releaser->requests, served);
        served++;
        sleep_until(releaser->deadline_ns);
        release(releaser);
    }
    return NULL;
}

int start_releaser(void)
{
    pthread_t thread;

    if (my_releaser)
        return my_releaser->tid;
    my_releaser = calloc(1, sizeof(*my_releaser));
    if (!my_releaser || pipe2(my_releaser->pipe_ends, O_CLOEXEC) != 0 ||
        pthread_create(&thread, NULL, run_releaser, my_releaser) != 0)
        abort();
    pthread_detach(thread);
    while (!__atomic_load_n(&my_releaser->tid, __ATOMIC_ACQUIRE))
        sched_yield();
    return my_releaser->tid;
}

static struct releaser *ask_for_release(uint64_t ns, int uses_pipe)
{
    struct releaser *releaser;

    start_releaser();
    releaser = my_releaser;
    releaser->deadline_ns = monotonic_ns() + ns;
    releaser->uses_pipe = uses_pipe;
    releaser->released = 0;
    __atomic_fetch_add(&releaser->requests, 1, __ATOMIC_RELEASE);
    futex_wake(&releaser->requests);
    return releaser;
}

void wait_on_futex(uint64_t ns)
{
    struct releaser *releaser = ask_for_release(ns, 0);

    while (!__atomic_load_n(&releaser->released, __ATOMIC_ACQUIRE))
        futex_wait(&releaser->released, 0);
}

void wait_on_pipe(uint64_t ns)
{
    struct releaser *releaser = ask_for_release(ns, 1);
    char byte;

    while (read(releaser->pipe_ends[0], &byte, 1) < 0 && errno == EINTR)
        ;
}

// A file of 16 MiB that no one else sees. Not every file system knows O_DIRECT; without it each read drops the cached
// page first.
static int open_disk_file(void)
{
    char path[512];
    static char block[BLOCK];
    const char *folder = getenv("FAKE_CUDA_IO_DIR");
    int file, direct;

    snprintf(path, sizeof(path), "%s/fake-cuda-io-XXXXXX", folder ? folder : "/var/tmp");
    file = mkostemp(path, O_CLOEXEC);
    if (file < 0)
        abort();
    for (int i = 0; i < BLOCKS; i++)
        if (write(file, block, BLOCK) != BLOCK)
            abort();
    fdatasync(file);
    direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    unlink(path);
    if (direct < 0)
        return file;
    close(file);
    return direct;
}

static int disk_file;

static void open_disk_file_once(void)
{
    disk_file = open_disk_file();
}

void prepare_disk(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, open_disk_file_once);
}

// Needs prepare_disk().
void read_from_disk(uint64_t ns)
{
    static __thread uint32_t position;
    uint64_t end;
    void *block;

    if (posix_memalign(&block, BLOCK, BLOCK) != 0)
        abort();
    for (end = monotonic_ns() + ns; monotonic_ns() < end;) {
        off_t offset = (off_t)(position++ * 2654435761u % BLOCKS) * BLOCK;

        posix_fadvise(disk_file, offset, BLOCK, POSIX_FADV_DONTNEED);
        if (pread(disk_file, block, BLOCK, offset) != BLOCK)
            abort();
    }
    free(block);
}
