// SPDX-License-Identifier: Apache-2.0
//
// A program that makes a known number of CUDA calls and says what it did.
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include "fake_cuda.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_OPS = 64, MAX_PLANS = 8, MAX_THREADS = 256 };

typedef uint64_t word;
typedef int (*cuda_function)();

struct op;

enum fault { NO_FAULT, DIE_INSIDE, LONGJMP, FORK_INSIDE };

// What a function of the fake driver is told to do.
struct behaviour {
    const char *op;
    enum fake_mode mode;
    uint64_t ns;
    int ret;
};

struct options {
    int threads;
    uint64_t calls;
    double rate;
    double duration_s;
    bool runtime_layer;
    const char *mix;
    struct behaviour behaviours[MAX_PLANS];
    int behaviour_count;
    bool wait_start, wait_end;
    const char *driver_path; // --dlopen
    int devices;
    enum fault fault;
    bool exec_self;
    bool clocks; // ask the kernel around each call
    const char *name;
    char **argv;
};

// What the kernel says of a thread: its time on a CPU and waiting for one, and how often it gave the CPU up by itself.
struct clocks {
    uint64_t cpu_ns, run_queue_ns, waits;
};

// What one thread knows of its calls to one function.
struct tally {
    uint64_t calls, abandoned, errors, wall_ns, first_ns, last_ns;
    // With --clocks: sums over the calls, and in how many of them the thread waited.
    uint64_t cpu_ns, run_queue_ns, waiting_calls;
};

struct caller {
    int index, tid, device, releaser_tid;
    uint64_t calls_made;
    word context, stream, event, memory, graph, executable;
    struct tally tallies[MAX_OPS];
    const struct op *inside;
    jmp_buf before_call;
    int child_pid;
    struct clocks clocks; // with --clocks: from the first call to the last
};

// One function of the workload's repertoire. `call` makes exactly one call of it.
struct op {
    const char *name;   // as in the header, without suffix
    const char *symbol; // as exported
    const char *inner;  // the driver function a runtime function ends up in
    word bytes;
    int (*call)(struct caller *caller, cuda_function function);
};

extern struct options options;
extern const struct op ops[];
extern const int op_count;

// workload_options.c
void parse_options(int argc, char **argv);

// workload_libraries.c
void load_libraries(void);
cuda_function function_of(const struct op *op);
cuda_function driver_function_named(const char *symbol);
const struct op *find_op(const char *name);
void fail(const char *what, const char *why) __attribute__((noreturn));

// workload_mixes.c
const struct op *const *mix_of(const struct options *options, int *length);
void set_up(struct caller *caller);

// workload_calls.c
uint64_t monotonic_ns(void);
void make_call(struct caller *caller, const struct op *op);
void make_calls(struct caller *caller);

// workload_clocks.c
struct clocks read_clocks(void);
struct clocks clocks_since(const struct clocks *before);

// workload_faults.c
void install_fault(void);
bool is_faulty(const struct op *op);

// workload_truth.c
void print_truth(const struct caller *callers, int count, uint64_t elapsed_ns);

#endif
