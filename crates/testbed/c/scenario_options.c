// SPDX-License-Identifier: Apache-2.0
//
// The command line of the program `scenario`.
#define _GNU_SOURCE
#include "scenario.h"

#include <getopt.h>
#include <stdlib.h>

enum flag { FAULT = 1, SEED, THREADS, DURATION, HEALTHY, CGROUP, FIFO, PORT };

struct options options = {.threads = 1, .duration_ms = 1000};

static void apply(int option, char *value)
{
    switch (option) {
    case FAULT:
        options.fault = find_fault(value);
        break;
    case SEED:
        options.seed = strtoull(value, NULL, 10);
        break;
    case THREADS:
        options.threads = atoi(value);
        break;
    case DURATION:
        options.duration_ms = strtoull(value, NULL, 10);
        break;
    case HEALTHY:
        options.healthy = true;
        break;
    case CGROUP:
        options.cgroup = value;
        break;
    case FIFO:
        options.fifo = value;
        break;
    case PORT:
        options.port = atoi(value);
        break;
    default:
        exit(2);
    }
}

void parse_options(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"fault", required_argument, NULL, FAULT},
        {"seed", required_argument, NULL, SEED},
        {"threads", required_argument, NULL, THREADS},
        {"duration-ms", required_argument, NULL, DURATION},
        {"healthy", no_argument, NULL, HEALTHY},
        {"cgroup", required_argument, NULL, CGROUP},
        {"fifo", required_argument, NULL, FIFO},
        {"port", required_argument, NULL, PORT},
        {0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1)
        apply(option, optarg);
    if (!options.fault)
        fail("--fault names no fault");
    if (optind < argc || options.threads < 1 || options.threads > MAX_DISPATCHERS || options.duration_ms == 0)
        fail("an argument is unknown or out of range");
}
