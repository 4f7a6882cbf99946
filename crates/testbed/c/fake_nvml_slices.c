// The slices of the fake libnvidia-ml's GPU: as many as "slices" says in the file that FAKE_NVML_FILE names.
#include "fake_nvml.h"

#include <stdio.h>

enum { MOST_SLICES = 7, UUID_BYTES = 41 };

static char slices[MOST_SLICES];

static unsigned count(void)
{
    long long said = now_said("slices");
    return said < 0 ? 0 : said > MOST_SLICES ? MOST_SLICES : (unsigned)said;
}

int slice_of(void *device)
{
    char *slice = device;
    return slice >= slices && slice < slices + MOST_SLICES ? (int)(slice - slices) : -1;
}

EXPORT int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    (void)device;
    *current = *pending = count() > 0;
    return now_said("slices") < 0 ? NOT_SUPPORTED : SUCCESS;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *most)
{
    (void)device;
    *most = MOST_SLICES;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **slice)
{
    (void)device;
    if (index >= count())
        return NOT_FOUND;
    *slice = &slices[index];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length)
{
    int slice = slice_of(device);
    if (length < UUID_BYTES)
        return INSUFFICIENT_SIZE;
    if (slice < 0)
        snprintf(uuid, length, "GPU-00000000-0000-4000-8000-000000000000");
    else
        snprintf(uuid, length, "MIG-00000000-0000-4000-8000-00000000000%d", slice + 1);
    return SUCCESS;
}

// Slices are instances with numbers from 1 on, each with one instance of multiprocessors.
EXPORT int nvmlDeviceGetGpuInstanceId(void *device, unsigned *id)
{
    *id = (unsigned)slice_of(device) + 1;
    return slice_of(device) < 0 ? NOT_SUPPORTED : SUCCESS;
}

EXPORT int nvmlDeviceGetComputeInstanceId(void *device, unsigned *id)
{
    *id = 0;
    return slice_of(device) < 0 ? NOT_SUPPORTED : SUCCESS;
}
