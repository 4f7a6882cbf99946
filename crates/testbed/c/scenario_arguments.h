// SPDX-License-Identifier: Apache-2.0
//
// How the programs of the scenarios read their command lines.
#ifndef SCENARIO_ARGUMENTS_H
#define SCENARIO_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>

// Where its value goes says what an argument takes: text, a number, or nothing. One place is given.
struct argument {
    const char *name;
    const char **text;
    uint64_t *number;
    int *count;
    bool *given;
};

enum { MAX_ARGUMENTS = 16 };

// Fills in what the command line says; the list ends with an argument without a name. Ends the program on an option
// that is not in it, and returns whether there is anything else.
bool read_arguments(int argc, char **argv, const struct argument *arguments);

#endif
