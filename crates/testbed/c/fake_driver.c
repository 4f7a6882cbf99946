// SPDX-License-Identifier: Apache-2.0
//
// A libcuda without a GPU: the real symbols, each of which does what its plan says.
#include "fake_plan.h"

#include <stddef.h>
#include <stdint.h>

// Handles and addresses are never used twice and never followed.
static uint64_t next_handle(void)
{
    static uint64_t last = 0x7f0000000000;

    return __atomic_add_fetch(&last, 0x1000, __ATOMIC_RELAXED);
}

static int act_and_store(enum driver_index index, uint64_t *out)
{
    int ret = act(index);

    if (ret == 0 && out)
        *out = next_handle();
    return ret;
}

#define SLOTS_0 uint64_t *out
#define SLOTS_1 uint64_t slot_0, uint64_t *out
#define SLOTS_3 uint64_t slot_0, uint64_t slot_1, uint64_t slot_2, uint64_t *out

// The stubs leave their other arguments where the caller put them.
#define DEFINE_PLAIN(name)                                                                                             \
    EXPORT int name(void)                                                                                              \
    {                                                                                                                  \
        return act(INDEX_##name);                                                                                      \
    }
#define DEFINE_OUT(name, slot)                                                                                         \
    EXPORT int name(SLOTS_##slot)                                                                                      \
    {                                                                                                                  \
        return act_and_store(INDEX_##name, out);                                                                       \
    }
#define DEFINE_BY_HAND(name)

#pragma GCC diagnostic ignored "-Wunused-parameter"
DRIVER_FUNCTIONS(DEFINE_PLAIN, DEFINE_OUT, DEFINE_BY_HAND)

EXPORT int cuDriverGetVersion(int *version)
{
    *version = 12090;
    return act(INDEX_cuDriverGetVersion);
}

DRIVER_ALIASES(DEFINE_ALIAS)
