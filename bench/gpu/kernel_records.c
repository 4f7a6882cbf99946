// SPDX-License-Identifier: Apache-2.0
//
// What the GPU did and when, as CUPTI records it: the truth that ledger.py compares gpuwhy with. CUDA loads this
// library into each process that uses a GPU while CUDA_INJECTION64_PATH names it. Each kernel, copy and memset becomes
// a record in the file that KERNEL_RECORDS names, with the process's number appended. Nothing here ends the program:
// what goes wrong is said on stderr, and ledger.py misses the records.
//
// Times are CLOCK_MONOTONIC, which is the clock of gpuwhy's probes.
#define _GNU_SOURCE
#include <cupti.h>

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

// A version of a record has the fields of the one before it at the same places and more behind them. So any version
// that the headers know fits what the library writes. These are in the headers of CUDA 12.9 and of 13.0 to 13.4.
#ifndef KERNEL_RECORD
#define KERNEL_RECORD CUpti_ActivityKernel9
#endif
#ifndef COPY_RECORD
#define COPY_RECORD CUpti_ActivityMemcpy5
#endif
#ifndef PEER_COPY_RECORD
#define PEER_COPY_RECORD CUpti_ActivityMemcpyPtoP4
#endif
#ifndef MEMSET_RECORD
#define MEMSET_RECORD CUpti_ActivityMemset4
#endif

enum { BUFFER_BYTES = 8 << 20, BUFFER_ALIGNMENT = 8, AT_ONCE = 1024, FLUSH_EVERY_MS = 500 };

// What ledger.py reads. The last record of all holds the sums: how many were dropped, how many have no time.
enum kind { SUMS, KERNEL, COPY, MEMSET };

struct record {
	uint64_t start_ns, end_ns;
	uint32_t kind, device;
};

static struct {
	pthread_mutex_t lock;
	pid_t owner;
	int file;
	uint64_t dropped, untimed;
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = -1};

static uint64_t CUPTIAPI monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

// A child that was forked has this library, its lock in any state, and no part in the file.
static bool is_owner(void)
{
	return getpid() == writer.owner;
}

static void put(const struct record *records, size_t count)
{
	const char *bytes = (const char *)records;
	size_t left = count * sizeof(*records);

	while (left > 0) {
		ssize_t written = write(writer.file, bytes, left);

		if (written <= 0) {
			writer.dropped += left / sizeof(*records);
			return;
		}
		bytes += written;
		left -= written;
	}
}

// The arguments of `describe` from one version of a record.
#define OF(type) ((const type *)activity)->start, ((const type *)activity)->end, ((const type *)activity)->deviceId

// False for what has no times because the GPU had not ended it.
static bool describe(struct record *record, enum kind kind, uint64_t start_ns, uint64_t end_ns, uint32_t device)
{
	*record = (struct record){.start_ns = start_ns, .end_ns = end_ns, .kind = kind, .device = device};
	if (start_ns != 0 && end_ns != 0)
		return true;
	writer.untimed++;
	return false;
}

static bool take(struct record *record, const CUpti_Activity *activity)
{
	switch (activity->kind) {
	case CUPTI_ACTIVITY_KIND_KERNEL:
	case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
		return describe(record, KERNEL, OF(KERNEL_RECORD));
	case CUPTI_ACTIVITY_KIND_MEMCPY:
		return describe(record, COPY, OF(COPY_RECORD));
	case CUPTI_ACTIVITY_KIND_MEMCPY2:
		return describe(record, COPY, OF(PEER_COPY_RECORD));
	case CUPTI_ACTIVITY_KIND_MEMSET:
		return describe(record, MEMSET, OF(MEMSET_RECORD));
	default:
		return false;
	}
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
	*buffer = aligned_alloc(BUFFER_ALIGNMENT, BUFFER_BYTES);
	*bytes = *buffer ? BUFFER_BYTES : 0;
	*most_records = 0; // as many as there is room for
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t used)
{
	struct record records[AT_ONCE];
	CUpti_Activity *activity = NULL;
	size_t count = 0, dropped = 0;

	(void)bytes;
	if (!is_owner())
		return;
	pthread_mutex_lock(&writer.lock);
	while (cuptiActivityGetNextRecord(buffer, used, &activity) == CUPTI_SUCCESS) {
		count += take(&records[count], activity);
		if (count == AT_ONCE) {
			put(records, count);
			count = 0;
		}
	}
	put(records, count);
	if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
		writer.dropped += dropped;
	pthread_mutex_unlock(&writer.lock);
	free(buffer);
}

static bool try(const char *what, CUptiResult result)
{
	const char *why = "unknown";

	if (result == CUPTI_SUCCESS)
		return true;
	cuptiGetResultString(result, &why);
	fprintf(stderr, "kernel_records: %s: %s\n", what, why);
	return false;
}

// Without the sums, ledger.py knows that the last records are missing.
static void end_records(void)
{
	struct record sums = {.kind = SUMS};

	if (!is_owner() || !try("the end", cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)))
		return;
	pthread_mutex_lock(&writer.lock);
	sums.start_ns = writer.dropped;
	sums.end_ns = writer.untimed;
	put(&sums, 1);
	pthread_mutex_unlock(&writer.lock);
}

static bool open_file(void)
{
	const char *name = getenv("KERNEL_RECORDS");
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s.%d", name ? name : "", (int)getpid());
	if (name)
		writer.file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
	if (writer.file < 0)
		fprintf(stderr, "kernel_records: no file; KERNEL_RECORDS is %s\n", name ? name : "not set");
	return writer.file >= 0;
}

// The clock has to be there before anything is recorded.
static bool start_records(void)
{
	return try("clock", cuptiActivityRegisterTimestampCallback(monotonic_ns)) &&
	       try("buffers", cuptiActivityRegisterCallbacks(give_buffer, take_buffer)) &&
	       try("flushing", cuptiActivityFlushPeriod(FLUSH_EVERY_MS)) &&
	       try("kernels", cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) &&
	       try("copies", cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY)) &&
	       try("copies between GPUs", cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY2)) &&
	       try("memsets", cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
}

// CUDA calls it once, when it is initialised.
__attribute__((visibility("default"))) int InitializeInjection(void)
{
	writer.owner = getpid();
	if (open_file() && start_records())
		atexit(end_records);
	return 1;
}
