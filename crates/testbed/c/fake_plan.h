// SPDX-License-Identifier: Apache-2.0
//
// The plan of each function of the fake driver library, looked at on every call.
#ifndef FAKE_PLAN_H
#define FAKE_PLAN_H

#include "driver_functions.h"
#include "fake_cuda.h"

#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define DEFINE_ALIAS(symbol, name) EXPORT extern __typeof__(name) symbol __attribute__((alias(#name)));

#define INDEX_PLAIN(name) INDEX_##name,
#define INDEX_OUT(name, slot) INDEX_##name,
enum driver_index { DRIVER_FUNCTIONS(INDEX_PLAIN, INDEX_OUT, INDEX_PLAIN) DRIVER_COUNT };

struct plan {
    enum fake_mode mode;
    int ret;
    uint64_t ns;
    const char *symbol;
};

extern struct plan plans[DRIVER_COUNT];

int follow_plan(const struct plan *plan);

// What a function does first: nearly always nothing.
static inline int act(enum driver_index index)
{
    const struct plan *plan = &plans[index];

    if (__builtin_expect(plan->mode == FAKE_RETURN, 1))
        return plan->ret;
    return follow_plan(plan);
}

#endif
