// SPDX-License-Identifier: Apache-2.0
//
// A GPU's timeline: each thread has a stream, in which a kernel starts when the one before it is done. A launch that
// comes late leaves a gap.
#include "fake_gpu.h"

#include "fake_plan.h"
#include "fake_waits.h"

static __thread uint64_t kernel_ns, done_ns;

EXPORT void fake_cuda_kernel_ns(uint64_t ns)
{
    kernel_ns = ns;
}

void give_gpu_a_kernel(void)
{
    uint64_t now = monotonic_ns();

    done_ns = (done_ns > now ? done_ns : now) + kernel_ns;
}

uint64_t gpu_done_ns(void)
{
    return done_ns;
}
