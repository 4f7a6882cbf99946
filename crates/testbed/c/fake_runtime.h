// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the fake runtime library share: the way to the driver, and arguments as plain words.
#ifndef FAKE_RUNTIME_H
#define FAKE_RUNTIME_H

#include <stdint.h>

#ifdef STATIC_RUNTIME
#define EXPORT __attribute__((visibility("hidden")))
#else
#define EXPORT __attribute__((visibility("default")))
#endif
#define DEFINE_ALIAS(symbol, name) EXPORT extern __typeof__(name) symbol __attribute__((alias(#name)));

typedef uint64_t word;
typedef int (*driver_function)();

struct dim3 {
    unsigned x, y, z;
};

driver_function find_driver_function(const char *symbol);

// A driver function, looked up when it is first called.
#define DRIVER(symbol)                                                                                                 \
    ({                                                                                                                 \
        static driver_function found;                                                                                  \
        driver_function function = __atomic_load_n(&found, __ATOMIC_RELAXED);                                          \
        if (__builtin_expect(!function, 0)) {                                                                          \
            function = find_driver_function(#symbol);                                                                  \
            __atomic_store_n(&found, function, __ATOMIC_RELAXED);                                                      \
        }                                                                                                              \
        function;                                                                                                      \
    })

#endif
