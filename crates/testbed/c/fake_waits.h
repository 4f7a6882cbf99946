// SPDX-License-Identifier: Apache-2.0
//
// The ways in which a fake call blocks.
#ifndef FAKE_WAITS_H
#define FAKE_WAITS_H

#include <stdint.h>

uint64_t monotonic_ns(void);
void sleep_until(uint64_t deadline_ns);
void wait_on_futex(uint64_t ns);
void wait_on_pipe(uint64_t ns);
void prepare_disk(void);
void read_from_disk(uint64_t ns);
int start_releaser(void);

#endif
