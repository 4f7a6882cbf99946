// SPDX-License-Identifier: Apache-2.0
//
// A call whose stack is known: what libwitness.so offers to the programs that call it.
#ifndef WITNESS_H
#define WITNESS_H

#ifdef __cplusplus
extern "C" {
#endif

// Writes down its callers as libgcc's unwinder finds them, then makes a slow driver call with the sequence number as
// its stream. Nothing of its own is on the stack twice: a tracer that takes the stack when the driver call returns must
// find this function first and after it what was written down.
void witness(unsigned long sequence);

// Says that the program is ready and waits for "go" on stdin.
void witness_start(void);

// Says that the program is done and waits for the end of stdin.
void witness_finish(void);

#ifdef __cplusplus
}
#endif

#endif
