// SPDX-License-Identifier: Apache-2.0
//
// How a program tells the fake driver library what its functions should do.
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdint.h>

enum fake_mode {
    FAKE_RETURN, // return at once
    FAKE_BURN,   // use this much CPU time
    FAKE_SLEEP,  // clock_nanosleep
    FAKE_FUTEX,  // wait on a futex that the fake's own thread releases
    FAKE_PIPE,   // read a pipe that the fake's own thread writes to
    FAKE_IO,     // read a file past the page cache until the time is over
    FAKE_HOOK,   // call the hook
    FAKE_LAUNCH, // use this much CPU time, then give the GPU a kernel to work on
    FAKE_AWAIT,  // sleep until the GPU has done the calling thread's kernels
    FAKE_SPIN,   // the same without leaving the CPU
    FAKE_MEET,   // sleep until the GPU has done the calling thread's kernels, then call the hook
};

typedef void (*fake_hook)(const char *symbol);

// Sets what a function does from now on. `api` is its name with or without a version suffix; a name without one means
// every version. Returns how many functions changed.
int fake_cuda_set(const char *api, enum fake_mode mode, uint64_t ns, int ret);

// The function that FAKE_HOOK calls from inside a call.
void fake_cuda_hook(fake_hook hook);

// How long each kernel that the calling thread launches from now on keeps the GPU busy. Every thread has a stream of
// its own: a kernel starts when the one before it is done, or at once when the GPU has nothing to do.
void fake_cuda_kernel_ns(uint64_t ns);

// Starts the thread that releases the calling thread's FAKE_FUTEX and FAKE_PIPE waits, and returns its tid.
// Without this the first such call starts it.
int fake_cuda_prepare_thread(void);

#endif
