// SPDX-License-Identifier: Apache-2.0
//
// A training loop into which one fault is put: the parts of the program `scenario`.
#ifndef SCENARIO_H
#define SCENARIO_H

#include "scenario_cuda.h"
#include "scenario_work.h"

#include <pthread.h>

enum { MAX_DISPATCHERS = 8 };

struct options {
    const struct fault *fault;
    uint64_t seed, duration_ms;
    int threads;
    bool healthy;
    const char *cgroup; // the folder of a control group
    const char *fifo;   // where a producer's batches come from
    int port;           // of the server to ask
};

// A thread that feeds the GPU.
struct dispatcher {
    int index, tid;
    bool is_victim;
    pthread_t thread;
    uint64_t stream;
    struct shape shape;
    // What it did and what was done to it.
    uint64_t steps, fault_ns, major_faults, involuntary_switches, run_queue_ns;
};

// A fault, and what the healthy program does in its place. What is not given is as in every training loop.
struct fault {
    const char *name;
    bool hits_all; // every dispatch thread is a victim, not only the first
    bool pinned;   // dispatch threads share a CPU
    int niceness;  // of the dispatch threads, on top of what they come with
    bool may_spin; // no one else wants the CPU on which a dispatcher waits
    bool is_in_cgroup;
    void (*draw)(struct shape *shape); // what is special about a victim's step
    void (*prepare)(void);             // before the program is ready
    void (*begin)(void);               // when it goes
    void (*set_up)(struct dispatcher *dispatcher);
    void (*hit)(struct dispatcher *dispatcher, uint64_t ns); // takes this much of the victim's time
    void (*launch)(struct dispatcher *dispatcher);           // in place of cuLaunchKernel
    void (*launch_all)(struct dispatcher *dispatcher);       // in place of all launches of a step
    void (*end_step)(struct dispatcher *dispatcher);
    void (*end)(void); // when all dispatch threads are done
};

extern struct options options;
extern char ready_words[64]; // what the peers must know, said when the program is ready

// scenario_faults.c
const struct fault *find_fault(const char *name);
void draw_one_piece(struct shape *shape); // for faults that come once a step

// scenario_options.c
void parse_options(int argc, char **argv);

// scenario_steps.c
void start_clock(void);
bool is_over(void);
double share_done(void);
void launch_kernel(struct dispatcher *dispatcher);
void plan_calls(const struct shape *shape);
void *run_dispatcher(void *dispatcher);

// scenario_truth.c
void blame_thread(int tid);
void blame_process(int pid);
void observe_thread(struct dispatcher *dispatcher);
void print_truth(const struct dispatcher *dispatchers, int count, uint64_t elapsed_ns);

// A thread of the victim's process that is no dispatcher.
void start_thread(void *(*run)(void *), const char *name);

extern const struct fault cpu_hog, cpu_hog_threads, cpu_crowd, cpu_quota;            // scenario_cpu.c
extern const struct fault mutex_holder, mutex_sleeper, mutex_io_holder, slow_queue;  // scenario_locks.c
extern const struct fault direct_read, disk_hog, mapped_file, memory_limit;          // scenario_storage.c
extern const struct fault slow_peer, slow_pipe, idle_server;                         // scenario_peers.c
extern const struct fault malloc_per_step, out_of_memory, leak;                      // scenario_memory.c
extern const struct fault sync_per_op, tiny_kernels, pageable_copy, module_per_step; // scenario_calls.c
extern const struct fault capture_per_step, slow_ioctl;                              // scenario_calls.c
extern const struct fault long_kernels, app_computes, sleeps_on_purpose;             // scenario_plain.c
extern const struct fault oom;                                                       // scenario_oom.c
extern const struct fault late_rank;                                                 // scenario_ranks.c

#endif
