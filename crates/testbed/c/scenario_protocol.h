// SPDX-License-Identifier: Apache-2.0
//
// What a victim and its peer send each other.
#ifndef SCENARIO_PROTOCOL_H
#define SCENARIO_PROTOCOL_H

// A pipe holds two of them.
enum { BATCH_BYTES = 32 * 1024 };

#endif
