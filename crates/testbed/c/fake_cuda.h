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
};

typedef void (*fake_hook)(const char *symbol);

// Sets what a function does from now on. `api` is its name with or without a version suffix; a name without one means
// every version. Returns how many functions changed.
int fake_cuda_set(const char *api, enum fake_mode mode, uint64_t ns, int ret);

// The function that FAKE_HOOK calls from inside a call.
void fake_cuda_hook(fake_hook hook);

// Starts the thread that releases the calling thread's FAKE_FUTEX and FAKE_PIPE waits, and returns its tid.
// Without this the first such call starts it.
int fake_cuda_prepare_thread(void);

#endif
