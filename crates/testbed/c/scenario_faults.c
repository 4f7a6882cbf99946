// SPDX-License-Identifier: Apache-2.0
//
// The list of the faults.
#include "scenario.h"

#include <string.h>

// clang-format off
static const struct fault *const faults[] = {
    &cpu_hog, &cpu_hog_threads, &cpu_crowd, &cpu_quota,
    &mutex_holder, &mutex_sleeper, &mutex_io_holder, &slow_queue,
    &direct_read, &disk_hog, &mapped_file, &memory_limit,
    &slow_peer, &slow_pipe, &idle_server,
    &malloc_per_step, &out_of_memory, &leak,
    &sync_per_op, &tiny_kernels, &pageable_copy, &module_per_step, &capture_per_step, &slow_ioctl,
    &long_kernels, &app_computes, &sleeps_on_purpose,
    &oom,
    &late_rank,
};
// clang-format on

const struct fault *find_fault(const char *name)
{
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        if (strcmp(faults[i]->name, name) == 0)
            return faults[i];
    return NULL;
}

void draw_one_piece(struct shape *shape)
{
    shape->pieces = 1;
}
