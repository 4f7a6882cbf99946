// SPDX-License-Identifier: Apache-2.0
//
// Finding the CUDA functions. Nothing CUDA is linked in, except the runtime in the statically linked build.
#define _GNU_SOURCE
#include "workload.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *driver_library;
static cuda_function functions[MAX_OPS];

void fail(const char *what, const char *why)
{
    fprintf(stderr, "workload: %s: %s\n", what, why);
    exit(2);
}

static void *open_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);

    if (!library)
        fail(path, dlerror());
    return library;
}

static void *find_symbol(void *library, const char *symbol)
{
    void *found = dlsym(library, symbol);

    if (!found)
        fail(symbol, "not found");
    return found;
}

cuda_function driver_function_named(const char *symbol)
{
    return (cuda_function)find_symbol(driver_library, symbol);
}

#ifdef STATIC_RUNTIME

// clang-format off
#define RUNTIME_SYMBOLS(USE) \
    USE(cudaSetDevice) USE(cudaGetDevice) USE(cudaLaunchKernel) USE(cudaMemcpy) USE(cudaMemcpyAsync) USE(cudaMemsetAsync) \
    USE(cudaMalloc) USE(cudaFree) USE(cudaStreamSynchronize) USE(cudaEventSynchronize) USE(cudaDeviceSynchronize) \
    USE(cudaEventRecord) USE(cudaStreamBeginCapture) USE(cudaStreamEndCapture) USE(cudaGraphInstantiateWithFlags) \
    USE(cudaGraphLaunch)
// clang-format on

#define DECLARE(symbol) int symbol();
RUNTIME_SYMBOLS(DECLARE)

static cuda_function runtime_function_named(const char *symbol)
{
#define MATCH(candidate)                                                                                               \
    if (strcmp(symbol, #candidate) == 0)                                                                               \
        return candidate;
    RUNTIME_SYMBOLS(MATCH)
    fail(symbol, "not linked in");
}

static void open_runtime(void)
{
}

#else

static void *runtime_library;

static cuda_function runtime_function_named(const char *symbol)
{
    return (cuda_function)find_symbol(runtime_library, symbol);
}

static void open_runtime(void)
{
    runtime_library = open_library("libcudart.so.12");
}

#endif

static void set_behaviours(void)
{
    int (*set)(const char *, enum fake_mode, uint64_t, int) = find_symbol(driver_library, "fake_cuda_set");

    for (int i = 0; i < options.behaviour_count; i++) {
        const struct behaviour *behaviour = &options.behaviours[i];
        const struct op *op = find_op(behaviour->op);
        const char *api = op && op->inner ? op->inner : behaviour->op;

        if (set(api, behaviour->mode, behaviour->ns, behaviour->ret) == 0)
            fail(behaviour->op, "no such function");
    }
}

void load_libraries(void)
{
    driver_library = open_library(options.driver_path ? options.driver_path : "libcuda.so.1");
    if (options.runtime_layer)
        open_runtime();
    for (int i = 0; i < op_count; i++) {
        if (!ops[i].inner)
            functions[i] = driver_function_named(ops[i].symbol);
        else if (options.runtime_layer)
            functions[i] = runtime_function_named(ops[i].symbol);
    }
    set_behaviours();
    install_fault();
}

cuda_function function_of(const struct op *op)
{
    return functions[op - ops];
}

const struct op *find_op(const char *name)
{
    for (int i = 0; i < op_count; i++)
        if (strcmp(ops[i].name, name) == 0)
            return &ops[i];
    return NULL;
}
