// SPDX-License-Identifier: Apache-2.0
//
// What the victims and their peers share: time, chance, CPUs, the disk, and the line to whoever started them.
#ifndef SCENARIO_WORK_H
#define SCENARIO_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define US ((uint64_t)1000)
#define MS (1000 * US)
#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

// For functions with a line that a scenario is known by: `blame:` and `victim:` in a comment name the scenarios, see
// src/scenarios/lines.rs. Such a line is a call, and the function stays what the source says.
#define NOINLINE __attribute__((noinline, noclone))

// What a step is like. The seed decides, so that a peer knows its victim's steps.
struct shape {
    int launches;
    uint64_t gpu_ns;   // the GPU's work
    uint64_t host_ns;  // the application's own work, spread over the launches
    uint64_t fault_ns; // what the fault takes
    int pieces;        // in how many parts it takes it
    int pause_every;   // steps from one pause to the next, as for a checkpoint
    uint64_t pause_ns;
    bool wants_to_spin; // waits for the GPU without leaving the CPU, where it may
};

// scenario_shape.c
uint64_t draw(uint64_t *state);
double draw_between(uint64_t *state, double low, double high);
struct shape draw_shape(uint64_t seed, int dispatcher);

// scenario_work.c
uint64_t monotonic_ns(void);
void sleep_until(uint64_t deadline_ns);
void sleep_ns(uint64_t ns);
void burn_ns(uint64_t ns);
void pin_to_cpu(int index);
void tell_ready(const char *more);
void wait_for_go(void);
void fail(const char *what) __attribute__((noreturn));

// scenario_disk.c
int open_scratch_file(size_t bytes, bool direct);
void *page_aligned(size_t bytes);
void read_block(int file, size_t file_bytes, void *block, size_t block_bytes, uint64_t *random);
void read_directly(int file, size_t file_bytes, uint64_t ns);

#endif
