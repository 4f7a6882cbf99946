// What the parts of the fake libnvidia-ml share.
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

// The number after this name in the file that FAKE_NVML_FILE names, which a test may replace at any time. -1 where it
// says nothing.
long long now_said(const char *name);

// The same for the result of a function of the library: not supported where the file says nothing.
int now_told(const char *name, unsigned *value);

// The number of a slice of the GPU, from 0 on, by its handle; -1 for the GPU itself.
int slice_of(void *device);

#endif
