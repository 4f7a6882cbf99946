// SPDX-License-Identifier: Apache-2.0
//
// Faults in how the program calls the driver, and a driver that is slow itself.
#define _GNU_SOURCE
#include "scenario.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

// Waits for every single kernel, so that the application's work no longer overlaps with the GPU's.

static void draw_sync(struct shape *shape)
{
    shape->launches *= 5;
    shape->host_ns = shape->fault_ns < shape->gpu_ns ? shape->fault_ns : shape->gpu_ns;
}

static NOINLINE void launch_and_wait(struct dispatcher *dispatcher)
{
    launch_kernel(dispatcher);
    if (!options.healthy)
        cuStreamSynchronize(dispatcher->stream); // blame: sync-per-op
}

const struct fault sync_per_op = {
    .name = "sync-per-op", .may_spin = true, .draw = draw_sync, .launch = launch_and_wait};

// Many kernels that are shorter than their launch, or the same work in few.

static const uint64_t LAUNCH_NS = 15 * US;

static void draw_tiny(struct shape *shape)
{
    int launches = (shape->gpu_ns + shape->fault_ns) / LAUNCH_NS;

    shape->host_ns /= 4;
    shape->gpu_ns /= 3;
    shape->launches = options.healthy ? launches / 25 : launches;
}

static void plan_slow_launches(void)
{
    fake_cuda_set("cuLaunchKernel", FAKE_LAUNCH, LAUNCH_NS, 0);
}

const struct fault tiny_kernels = {.name = "tiny-kernels", .draw = draw_tiny, .prepare = plan_slow_launches};

// Copies from memory that the driver must stage, or from memory that the GPU reads by itself.

static const uint64_t STAGED_BYTES_PER_US = 6000;

static NOINLINE void copy_input(struct dispatcher *dispatcher, uint64_t ns)
{
    static char host[4096];
    uint64_t bytes = ns / US * STAGED_BYTES_PER_US;

    // Every step has the same shape, so that the plan of the last piece is this one's too.
    fake_cuda_set("cuMemcpyHtoDAsync", FAKE_BURN, options.healthy ? 3 * US : ns, 0);
    cuMemcpyHtoDAsync_v2(0x7e0000000000, host, bytes, dispatcher->stream); // blame: pageable-copy
}

const struct fault pageable_copy = {.name = "pageable-copy", .may_spin = true, .hit = copy_input};

// Loads code in every step, or once.

static NOINLINE void load_module(struct dispatcher *dispatcher, uint64_t ns)
{
    static const char image[] = "fatbin";
    uint64_t module;

    if (options.healthy && dispatcher->steps > 0)
        return;
    fake_cuda_set("cuModuleLoadData", FAKE_BURN, ns, 0);
    cuModuleLoadData(&module, image); // blame: module-per-step
    if (!options.healthy)
        cuModuleUnload(module);
}

const struct fault module_per_step = {.name = "module-per-step", .may_spin = true, .hit = load_module};

// Captures a graph for every step, or once.

static uint64_t graph, executable;

// What is captured runs when the graph does.
static NOINLINE void capture(struct dispatcher *dispatcher)
{
    fake_cuda_kernel_ns(0);
    fake_cuda_set("cuGraphInstantiateWithFlags", FAKE_BURN, dispatcher->shape.fault_ns, 0);
    cuStreamBeginCapture_v2(dispatcher->stream, 0); // blame: capture-per-step
    for (int i = 0; i < dispatcher->shape.launches; i++)
        launch_kernel(dispatcher);
    cuStreamEndCapture(dispatcher->stream, &graph);     // blame: capture-per-step
    cuGraphInstantiateWithFlags(&executable, graph, 0); // blame: capture-per-step
}

static void destroy_graph(struct dispatcher *dispatcher)
{
    (void)dispatcher;
    if (options.healthy)
        return;
    cuGraphExecDestroy(executable);
    cuGraphDestroy(graph);
}

static NOINLINE void launch_graph(struct dispatcher *dispatcher)
{
    if (!options.healthy || dispatcher->steps == 0)
        capture(dispatcher); // blame: capture-per-step
    burn_ns(dispatcher->shape.host_ns);
    fake_cuda_kernel_ns(dispatcher->shape.gpu_ns);
    cuGraphLaunch(executable, dispatcher->stream);
}

const struct fault capture_per_step = {
    .name = "capture-per-step", .may_spin = true, .launch_all = launch_graph, .end_step = destroy_graph};

// An ioctl that takes long, inside a call: the kernel counts the pieces of a file that has very many. They need not be
// on the disk for that.

enum { EXTENTS = 10240 };

static int file;
static __thread uint64_t ioctl_ns;

static uint64_t count_extents(void)
{
    struct fiemap map = {.fm_length = FIEMAP_MAX_OFFSET};
    uint64_t start = monotonic_ns();

    if (ioctl(file, FS_IOC_FIEMAP, &map) != 0)
        fail("the scratch file's file system cannot list extents");
    return monotonic_ns() - start;
}

static void prepare_extents(void)
{
    static char block[4096] = {1};

    file = open_scratch_file(0, false);
    for (int i = 0; i < EXTENTS; i++)
        if (pwrite(file, block, sizeof(block), (off_t)i * 2 * sizeof(block)) != sizeof(block))
            fail("cannot write a scratch file");
}

static void be_slow(const char *symbol)
{
    (void)symbol;
    for (uint64_t done = 0; done < ioctl_ns;)
        done += count_extents();
}

static void prepare_ioctl(void)
{
    prepare_extents();
    fake_cuda_hook(be_slow);
    fake_cuda_set("cuMemAlloc", FAKE_HOOK, 0, 0);
}

static NOINLINE void call_slow_driver(struct dispatcher *dispatcher, uint64_t ns)
{
    uint64_t memory;

    (void)dispatcher;
    ioctl_ns = options.healthy ? 0 : ns;
    cuMemAlloc_v2(&memory, MIB); // blame: slow-ioctl
    cuMemFree_v2(memory);
}

const struct fault slow_ioctl = {
    .name = "slow-ioctl", .may_spin = true, .draw = draw_one_piece, .prepare = prepare_ioctl, .hit = call_slow_driver};
