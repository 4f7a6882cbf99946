// SPDX-License-Identifier: Apache-2.0
//
// A libcudart on top of whatever libcuda.so.1 the program finds: each call makes one driver call through an exported
// driver symbol, as the real one does. Also built as an archive with hidden symbols, like libcudart_static.a.
#define _GNU_SOURCE
#include "fake_runtime.h"

#include "runtime_functions.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *driver_library;

static void load_driver(void)
{
    driver_library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver_library) {
        fprintf(stderr, "fake cudart: %s\n", dlerror());
        abort();
    }
}

driver_function find_driver_function(const char *symbol)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void *function;

    pthread_once(&once, load_driver);
    function = dlsym(driver_library, symbol);
    if (!function) {
        fprintf(stderr, "fake cudart: libcuda.so.1 has no %s\n", symbol);
        abort();
    }
    return (driver_function)function;
}

EXPORT int cudaRuntimeGetVersion(int *version)
{
    *version = 12090;
    return 0;
}

EXPORT int cudaGetLastError(void)
{
    return 0;
}

EXPORT int cudaSetDevice(int device)
{
    word context = 0;
    int ret = DRIVER(cuDevicePrimaryCtxRetain)(&context, device);

    return ret ? ret : DRIVER(cuCtxSetCurrent)(context);
}

EXPORT int cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    word context = 0;

    (void)device_flags, (void)flags;
    return DRIVER(cuDevicePrimaryCtxRetain)(&context, device);
}

EXPORT int cudaDeviceReset(void)
{
    int device = 0;

    DRIVER(cuCtxGetDevice)(&device);
    return DRIVER(cuDevicePrimaryCtxReset)(device);
}

EXPORT int cudaLaunchKernel(word function, struct dim3 grid, struct dim3 block, word args, word shared, word stream)
{
    return DRIVER(cuLaunchKernel)(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, stream,
                                  args, (word)0);
}

EXPORT int cudaLaunchCooperativeKernel(word function, struct dim3 grid, struct dim3 block, word args, word shared,
                                       word stream)
{
    return DRIVER(cuLaunchCooperativeKernel)(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                             (unsigned)shared, stream, args);
}

// The driver functions take up to nine arguments here; passing on words that the caller did not set is harmless.
#define DEFINE_FORWARD(name, symbol)                                                                                   \
    EXPORT int name(word a, word b, word c, word d, word e, word f, word g, word h, word i)                            \
    {                                                                                                                  \
        return DRIVER(symbol)(a, b, c, d, e, f, g, h, i);                                                              \
    }
RUNTIME_FORWARDS(DEFINE_FORWARD)

RUNTIME_ALIASES(DEFINE_ALIAS)
