// A libnvidia-ml with one GPU, which says of itself what FAKE_NVML says: "BUSY_PERCENT PROCESSES", and if it knows more
// "... WHY_IT_IS_SLOW CLOCK_MHZ MOST_MHZ". FAKE_NVML_MEMORY, "PID BYTES", says what one of the processes has of its
// memory; of the others that is not known. Such a GPU also tells what of it is in use. How it is, and whether it is
// divided into slices, is in the other parts.
#include "fake_nvml.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { GPU_UTILIZATION_SAMPLES = 1 };
enum { UNSIGNED_INT = 1 };
enum { SAMPLE_US = 200 * 1000, KEPT = 100 };

struct sample {
    unsigned long long timestamp;
    union {
        double number;
        unsigned int count;
        unsigned long long large;
    } value;
};

struct memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

struct metric {
    unsigned id, result;
    double value;
    const char *short_name, *long_name, *unit;
};

struct metrics {
    unsigned version, count;
    unsigned *before, *now;
    struct metric metrics[];
};

struct gpm_support {
    unsigned version, is_supported;
};

static unsigned busy_percent, processes, reasons, clock_mhz, most_mhz;
static struct process known_process;

EXPORT int nvmlInit_v2(void)
{
    const char *said = getenv("FAKE_NVML");
    if (!said)
        return NOT_FOUND;
    const char *memory = getenv("FAKE_NVML_MEMORY");
    if (memory)
        sscanf(memory, "%u %llu", &known_process.pid, &known_process.memory);
    int told = sscanf(said, "%u %u %u %u %u", &busy_percent, &processes, &reasons, &clock_mhz, &most_mhz);
    return told == 2 || told == 5 ? SUCCESS : NOT_FOUND;
}

EXPORT int nvmlShutdown(void)
{
    return SUCCESS;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 1;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = &busy_percent;
    if (now_said("lost") > 0)
        return GPU_IS_LOST;
    return index == 0 && now_said("gone") <= 0 ? SUCCESS : NOT_FOUND;
}

static unsigned long long now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000ull + now.tv_nsec / 1000;
}

// One for each fifth of a second, as long as they are kept.
EXPORT int nvmlDeviceGetSamples(void *device, int kind, unsigned long long seen_us, int *type, unsigned *count,
                                struct sample *samples)
{
    (void)device;
    if (kind != GPU_UTILIZATION_SAMPLES)
        return NOT_SUPPORTED;
    unsigned long long last = now_us() / SAMPLE_US, first = last - KEPT;
    if (seen_us / SAMPLE_US + 1 > first)
        first = seen_us / SAMPLE_US + 1;
    if (first > last)
        return NOT_FOUND;
    *type = UNSIGNED_INT;
    if (samples) {
        for (unsigned at = 0; at <= last - first && at < *count; at++) {
            samples[at].timestamp = (first + at) * SAMPLE_US;
            samples[at].value.count = now_said("busy") < 0 ? busy_percent : (unsigned)now_said("busy");
        }
    }
    *count = last - first + 1;
    return SUCCESS;
}

// A slice has one process, the last one the known one.
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *infos)
{
    int slice = slice_of(device);
    unsigned room = infos ? *count : 0, all = slice < 0 ? processes : 1;
    unsigned known = slice < 0 ? 0 : slice == now_said("slices") - 1 ? 0 : -1u;
    *count = all;
    if (room < all)
        return INSUFFICIENT_SIZE;
    for (unsigned at = 0; at < all; at++) {
        struct process other = {.pid = 2 + at, .memory = -1ull};
        infos[at] = at == known && known_process.pid ? known_process : other;
        infos[at].gpu_instance = infos[at].compute_instance = -1u;
    }
    return SUCCESS;
}

EXPORT int nvmlGpmQueryDeviceSupport(void *device, struct gpm_support *support)
{
    (void)device;
    support->is_supported = known_process.pid != 0;
    return SUCCESS;
}

EXPORT int nvmlGpmSampleAlloc(unsigned **sample)
{
    *sample = calloc(1, sizeof(**sample));
    return SUCCESS;
}

EXPORT int nvmlGpmSampleFree(unsigned *sample)
{
    free(sample);
    return SUCCESS;
}

// Samples are numbered.
EXPORT int nvmlGpmSampleGet(void *device, unsigned *sample)
{
    static unsigned last;
    (void)device;
    *sample = ++last;
    return SUCCESS;
}

// Each metric is its own number, if the samples are in order. It has no NVLink.
EXPORT int nvmlGpmMetricsGet(struct metrics *asked)
{
    enum { FIRST_OF_NVLINK = 60 };
    if (*asked->before + 1 != *asked->now)
        return NOT_FOUND;
    for (unsigned at = 0; at < asked->count; at++) {
        struct metric *metric = &asked->metrics[at];
        metric->short_name = metric->long_name = metric->unit = "";
        metric->result = metric->id < FIRST_OF_NVLINK ? SUCCESS : NOT_SUPPORTED;
        metric->value = metric->id;
    }
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory)
{
    unsigned long long slice = slice_of(device) + 1;
    if (slice > 0) {
        memory->total = 8ull << 30, memory->reserved = 0;
        memory->free = (8 - slice) << 30, memory->used = slice << 30;
        return SUCCESS;
    }
    memory->total = 16ull << 30, memory->reserved = 0;
    memory->free = 12ull << 30, memory->used = 4ull << 30;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *why)
{
    (void)device;
    *why = reasons;
    return most_mhz ? SUCCESS : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz)
{
    (void)device, (void)kind;
    *mhz = clock_mhz;
    return most_mhz ? SUCCESS : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *mhz)
{
    (void)device, (void)kind;
    *mhz = most_mhz;
    return most_mhz ? SUCCESS : NOT_SUPPORTED;
}
