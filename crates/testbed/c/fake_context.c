// SPDX-License-Identifier: Apache-2.0
//
// Devices and contexts of the fake driver library. Each thread has its own stack of contexts, the topmost is current.
#include "fake_plan.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { MAX_DEVICES = 64, MAX_DEPTH = 16, INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };

struct context {
    int device;
};

static struct context primary[MAX_DEVICES];
static __thread struct context *stack[MAX_DEPTH];
static __thread int depth;

static int device_count(void)
{
    const char *text = getenv("FAKE_CUDA_DEVICES");
    int count = text ? atoi(text) : 2;

    return count < 0 || count > MAX_DEVICES ? 2 : count;
}

static struct context *current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

static int push(struct context *context)
{
    if (depth == MAX_DEPTH)
        return INVALID_CONTEXT;
    stack[depth++] = context;
    return 0;
}

EXPORT int cuDeviceGetCount(int *count)
{
    *count = device_count();
    return act(INDEX_cuDeviceGetCount);
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
    if (ordinal < 0 || ordinal >= device_count())
        return INVALID_DEVICE;
    *device = ordinal;
    return act(INDEX_cuDeviceGet);
}

EXPORT int cuDevicePrimaryCtxRetain(struct context **out, int device)
{
    int ret = act(INDEX_cuDevicePrimaryCtxRetain);

    if (ret != 0)
        return ret;
    if (device < 0 || device >= device_count())
        return INVALID_DEVICE;
    primary[device].device = device;
    *out = &primary[device];
    return 0;
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = 1;
    return act(INDEX_cuDevicePrimaryCtxGetState);
}

static int create(struct context **out, int device)
{
    if (device < 0 || device >= device_count())
        return INVALID_DEVICE;
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return INVALID_CONTEXT;
    (*out)->device = device;
    return push(*out);
}

EXPORT int cuCtxCreate(struct context **out, unsigned flags, int device)
{
    int ret = act(INDEX_cuCtxCreate);

    (void)flags;
    return ret ? ret : create(out, device);
}

EXPORT int cuCtxCreate_v3(struct context **out, void *affinities, int count, unsigned flags, int device)
{
    int ret = act(INDEX_cuCtxCreate_v3);

    (void)affinities, (void)count, (void)flags;
    return ret ? ret : create(out, device);
}

EXPORT int cuCtxCreate_v4(struct context **out, void *params, unsigned flags, int device)
{
    int ret = act(INDEX_cuCtxCreate_v4);

    (void)params, (void)flags;
    return ret ? ret : create(out, device);
}

EXPORT int cuCtxDestroy(struct context *context)
{
    int ret = act(INDEX_cuCtxDestroy);

    if (ret == 0 && depth > 0 && current() == context)
        depth--;
    return ret;
}

EXPORT int cuCtxSetCurrent(struct context *context)
{
    int ret = act(INDEX_cuCtxSetCurrent);

    if (ret != 0)
        return ret;
    if (depth > 0)
        depth--;
    return context ? push(context) : 0;
}

EXPORT int cuCtxPushCurrent(struct context *context)
{
    int ret = act(INDEX_cuCtxPushCurrent);

    return ret ? ret : push(context);
}

EXPORT int cuCtxPopCurrent(struct context **out)
{
    int ret = act(INDEX_cuCtxPopCurrent);

    if (ret != 0)
        return ret;
    if (depth == 0)
        return INVALID_CONTEXT;
    if (out)
        *out = current();
    depth--;
    return 0;
}

EXPORT int cuCtxGetCurrent(struct context **out)
{
    *out = current();
    return act(INDEX_cuCtxGetCurrent);
}

EXPORT int cuCtxGetDevice(int *device)
{
    if (!current())
        return INVALID_CONTEXT;
    *device = current()->device;
    return act(INDEX_cuCtxGetDevice);
}

// Of the given context, or of the current one.
EXPORT int cuCtxGetDevice_v2(int *device, struct context *context)
{
    if (!context)
        return cuCtxGetDevice(device);
    *device = context->device;
    return act(INDEX_cuCtxGetDevice_v2);
}

CONTEXT_ALIASES(DEFINE_ALIAS)
