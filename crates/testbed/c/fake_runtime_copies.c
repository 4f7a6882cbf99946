// SPDX-License-Identifier: Apache-2.0
//
// The runtime's copies, memsets and pitched allocations whose arguments the driver takes in another shape.
#include "fake_runtime.h"

#include "runtime_functions.h"

enum kind { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, INFERRED };

struct copy_2d {
    word source[7], target[7], width, height;
};

struct pitched {
    word address, pitch, width, height;
};

struct extent {
    word width, height, depth;
};

static int copy(word target, word source, word count, int kind)
{
    switch (kind) {
    case HOST_TO_DEVICE:
        return DRIVER(cuMemcpyHtoD_v2)(target, source, count);
    case DEVICE_TO_HOST:
        return DRIVER(cuMemcpyDtoH_v2)(target, source, count);
    case DEVICE_TO_DEVICE:
        return DRIVER(cuMemcpyDtoD_v2)(target, source, count);
    default:
        return DRIVER(cuMemcpy)(target, source, count);
    }
}

static int copy_async(word target, word source, word count, int kind, word stream)
{
    switch (kind) {
    case HOST_TO_DEVICE:
        return DRIVER(cuMemcpyHtoDAsync_v2)(target, source, count, stream);
    case DEVICE_TO_HOST:
        return DRIVER(cuMemcpyDtoHAsync_v2)(target, source, count, stream);
    case DEVICE_TO_DEVICE:
        return DRIVER(cuMemcpyDtoDAsync_v2)(target, source, count, stream);
    default:
        return DRIVER(cuMemcpyAsync)(target, source, count, stream);
    }
}

EXPORT int cudaMemcpy(word target, word source, word count, int kind)
{
    return copy(target, source, count, kind);
}

EXPORT int cudaMemcpyAsync(word target, word source, word count, int kind, word stream)
{
    return copy_async(target, source, count, kind, stream);
}

EXPORT int cudaMemcpyToSymbol(word symbol, word source, word count, word offset, int kind)
{
    return copy(symbol + offset, source, count, kind);
}

EXPORT int cudaMemcpyFromSymbol(word target, word symbol, word count, word offset, int kind)
{
    return copy(target, symbol + offset, count, kind);
}

EXPORT int cudaMemcpyToSymbolAsync(word symbol, word source, word count, word offset, int kind, word stream)
{
    return copy_async(symbol + offset, source, count, kind, stream);
}

EXPORT int cudaMemcpyFromSymbolAsync(word target, word symbol, word count, word offset, int kind, word stream)
{
    return copy_async(target, symbol + offset, count, kind, stream);
}

static int copy_2d(word width, word height)
{
    struct copy_2d copy = {.width = width, .height = height};

    return DRIVER(cuMemcpy2D_v2)(&copy);
}

static int copy_2d_async(word width, word height, word stream)
{
    struct copy_2d copy = {.width = width, .height = height};

    return DRIVER(cuMemcpy2DAsync_v2)(&copy, stream);
}

#pragma GCC diagnostic ignored "-Wunused-parameter"

EXPORT int cudaMemcpy2D(word target, word target_pitch, word source, word source_pitch, word width, word height,
                        int kind)
{
    return copy_2d(width, height);
}

EXPORT int cudaMemcpy2DAsync(word target, word target_pitch, word source, word source_pitch, word width, word height,
                             int kind, word stream)
{
    return copy_2d_async(width, height, stream);
}

EXPORT int cudaMemcpy2DToArray(word target, word x, word y, word source, word pitch, word width, word height, int kind)
{
    return copy_2d(width, height);
}

EXPORT int cudaMemcpy2DToArrayAsync(word target, word x, word y, word source, word pitch, word width, word height,
                                    int kind, word stream)
{
    return copy_2d_async(width, height, stream);
}

EXPORT int cudaMemcpy2DFromArray(word target, word pitch, word source, word x, word y, word width, word height,
                                 int kind)
{
    return copy_2d(width, height);
}

EXPORT int cudaMemcpy2DFromArrayAsync(word target, word pitch, word source, word x, word y, word width, word height,
                                      int kind, word stream)
{
    return copy_2d_async(width, height, stream);
}

EXPORT int cudaMemcpy2DArrayToArray(word target, word target_x, word target_y, word source, word source_x,
                                    word source_y, word width, word height, int kind)
{
    return copy_2d(width, height);
}

EXPORT int cudaMemset3D(struct pitched memory, int value, struct extent extent)
{
    return DRIVER(cuMemsetD2D8_v2)(memory.address, memory.pitch, value, extent.width, extent.height * extent.depth);
}

EXPORT int cudaMemset3DAsync(struct pitched memory, int value, struct extent extent, word stream)
{
    return DRIVER(cuMemsetD2D8Async)(memory.address, memory.pitch, value, extent.width, extent.height * extent.depth,
                                     stream);
}

EXPORT int cudaMalloc3D(struct pitched *memory, struct extent extent)
{
    memory->pitch = extent.width;
    return DRIVER(cuMemAllocPitch_v2)(&memory->address, &memory->pitch, extent.width, extent.height * extent.depth, 4);
}

RUNTIME_COPY_ALIASES(DEFINE_ALIAS)
