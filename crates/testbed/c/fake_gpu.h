// SPDX-License-Identifier: Apache-2.0
//
// The GPU that is not there: when it would be done.
#ifndef FAKE_GPU_H
#define FAKE_GPU_H

#include <stdint.h>

void give_gpu_a_kernel(void);
uint64_t gpu_done_ns(void);

#endif
