// SPDX-License-Identifier: Apache-2.0
//
// The situations from which `witness_c` calls witness(). Each takes a number that varies it.
#ifndef SITUATIONS_H
#define SITUATIONS_H

#include "witness.h"

#define NOINLINE __attribute__((noinline, noclone))
#define KEEP_FRAME __asm__ volatile("") // behind a call, so that it is no jump

typedef void situation(unsigned long sequence);

enum { MAX_DEPTH = 90 }; // with what comes before and after it, about 100 frames

// situations_frames.c: how a frame is laid out
situation in_recursion, in_mutual_recursion, with_alloca, with_large_frame, with_realigned_stack;
situation with_realigned_alloca, with_arguments_on_stack, with_saved_registers, with_variable_arguments;

// situations_calls.c: how one gets from one function to the next
situation through_pointers, through_qsort, through_tree, through_phdrs, through_once, through_tail_calls;
situation behind_tail_call, without_return, in_unlikely_code;

// situations_signals.c: where the stack is not what calls have made of it
situation in_signal_handler, on_signal_stack, in_timer_signal, in_fault_handler, in_thread, in_deep_thread;
situation in_coroutine;

#endif
