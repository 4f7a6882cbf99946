// SPDX-License-Identifier: Apache-2.0
//
// Programs that look slow and have no fault of the machine: the GPU has much to do, or the program does not want more
// of it.
#include "scenario.h"

static void draw_long(struct shape *shape)
{
    if (!options.healthy)
        shape->gpu_ns *= 4;
}

const struct fault long_kernels = {.name = "long-kernels", .hits_all = true, .may_spin = true, .draw = draw_long};

static NOINLINE void compute(struct dispatcher *dispatcher)
{
    if (!options.healthy)
        burn_ns(dispatcher->shape.fault_ns); // blame: app-computes
}

const struct fault app_computes = {.name = "app-computes", .may_spin = true, .end_step = compute};

static NOINLINE void sleep_a_while(struct dispatcher *dispatcher)
{
    if (!options.healthy)
        sleep_ns(dispatcher->shape.fault_ns); // blame: sleeps-on-purpose
}

const struct fault sleeps_on_purpose = {.name = "sleeps-on-purpose", .may_spin = true, .end_step = sleep_a_while};
