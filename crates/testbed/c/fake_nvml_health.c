// How the GPU of the fake libnvidia-ml is, in a file that a test may replace while a trace is taken: lines with a name
// and a number. What it does not say, the library does not tell.
#include "fake_nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RETIRED_PENDING = 31, REMAPPED_UNCORRECTED = 143, REMAPPED_PENDING = 144, REMAPPED_FAILURE = 145 };
enum { UNSIGNED_INT = 1 };

struct field {
    unsigned id, scope;
    long long at_us, took_us;
    int kind, result;
    union {
        double number;
        unsigned int count;
        unsigned long long large;
    } value;
};

long long now_said(const char *name)
{
    const char *path = getenv("FAKE_NVML_FILE");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file)
        return -1;
    char word[64];
    long long value, found = -1;
    while (fscanf(file, "%63s %lld", word, &value) == 2)
        if (strcmp(word, name) == 0)
            found = value;
    fclose(file);
    return found;
}

int now_told(const char *name, unsigned *value)
{
    long long said = now_said(name);
    *value = said < 0 ? 0 : (unsigned)said;
    return said < 0 ? NOT_SUPPORTED : SUCCESS;
}

EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *value)
{
    (void)device;
    return now_told("pcie_generation", value);
}

EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *value)
{
    (void)device;
    return now_told("pcie_most_generation", value);
}

EXPORT int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *value)
{
    (void)device;
    return now_told("pcie_width", value);
}

EXPORT int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *value)
{
    (void)device;
    return now_told("pcie_most_width", value);
}

static long long of_link(unsigned link, const char *what)
{
    char name[64];
    snprintf(name, sizeof(name), "link%u_%s", link, what);
    return now_said(name);
}

EXPORT int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *state)
{
    (void)device;
    long long said = of_link(link, "up");
    *state = said > 0;
    if (said >= 0)
        return SUCCESS;
    return link == 0 ? NOT_SUPPORTED : INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, int counter, unsigned long long *value)
{
    static const char *const COUNTERS[] = {"replay", "recovery", "crc_flit", "crc_data"};
    (void)device;
    long long said = of_link(link, COUNTERS[counter & 3]);
    *value = said < 0 ? 0 : (unsigned long long)said;
    return said < 0 ? NOT_SUPPORTED : SUCCESS;
}

EXPORT int nvmlDeviceGetFieldValues(void *device, int count, struct field *fields)
{
    (void)device;
    for (int at = 0; at < count; at++) {
        const char *name = fields[at].id == RETIRED_PENDING        ? "pages_pending"
                           : fields[at].id == REMAPPED_UNCORRECTED ? "rows_remapped"
                           : fields[at].id == REMAPPED_PENDING     ? "rows_pending"
                           : fields[at].id == REMAPPED_FAILURE     ? "rows_failed"
                                                                   : "";
        fields[at].kind = UNSIGNED_INT;
        fields[at].result = now_told(name, &fields[at].value.count);
    }
    return SUCCESS;
}
