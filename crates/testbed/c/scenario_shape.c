// SPDX-License-Identifier: Apache-2.0
//
// What the seed decides: how long a step is, how many launches it has, how strong the fault is.
#include "scenario_work.h"

// splitmix64
uint64_t draw(uint64_t *state)
{
    uint64_t value = *state += 0x9e3779b97f4a7c15;

    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
}

double draw_between(uint64_t *state, double low, double high)
{
    return low + (high - low) * ((draw(state) >> 11) * 0x1p-53);
}

// The fault's share of the wall time is what is drawn; the rest of a step is the GPU's.
struct shape draw_shape(uint64_t seed, int dispatcher)
{
    uint64_t state = seed * 64 + dispatcher;
    double gpu_ms = draw_between(&state, 5, 14);
    double host_share = draw_between(&state, 0.03, 0.08);
    double fault_share = draw_between(&state, 0.30, 0.60);

    return (struct shape){
        .launches = draw_between(&state, 8, 40),
        .gpu_ns = gpu_ms * MS,
        .host_ns = gpu_ms * MS * host_share,
        .fault_ns = gpu_ms * MS * fault_share / (1 - fault_share),
        .pieces = draw_between(&state, 1, 4),
        .pause_every = draw_between(&state, 60, 120),
        .pause_ns = draw_between(&state, 2, 10) * MS,
        .wants_to_spin = draw(&state) % 2,
    };
}
