// SPDX-License-Identifier: Apache-2.0
//
// The command line of the program `scenario`.
#define _GNU_SOURCE
#include "scenario.h"
#include "scenario_arguments.h"

struct options options = {.threads = 1, .duration_ms = 1000};

void parse_options(int argc, char **argv)
{
    const char *fault = "";
    const struct argument arguments[] = {
        {"fault", .text = &fault},
        {"seed", .number = &options.seed},
        {"threads", .count = &options.threads},
        {"duration-ms", .number = &options.duration_ms},
        {"healthy", .given = &options.healthy},
        {"cgroup", .text = &options.cgroup},
        {"fifo", .text = &options.fifo},
        {"port", .count = &options.port},
        {0},
    };
    bool has_more = read_arguments(argc, argv, arguments);

    options.fault = find_fault(fault);
    if (!options.fault)
        fail("--fault names no fault");
    if (has_more || options.threads < 1 || options.threads > MAX_DISPATCHERS || options.duration_ms == 0)
        fail("an argument is unknown or out of range");
}
