// SPDX-License-Identifier: Apache-2.0
//
// A process next to a victim, in one of several roles:
//
//     scenario_peer --role NAME --seed N [--healthy] [--fifo PATH] [--port N] [--controller NAME --limit TEXT]
//
// "go" on stdin starts it, the end of stdin ends it.
#define _GNU_SOURCE
#include "scenario_peer.h"

#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum flag { ROLE = 1, SEED, HEALTHY, FIFO, PORT, CONTROLLER, LIMIT };

// clang-format off
static const struct role *const roles[] = {
    &hog, &background, &disk_hog,
    &loader, &disk_loader, &server, &client,
    &cgroup,
    &check_direct_io, &check_extents,
};
// clang-format on

struct peer_options options;

static const struct role *find_role(const char *name)
{
    for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
        if (strcmp(roles[i]->name, name) == 0)
            return roles[i];
    return NULL;
}

static void apply(int option, char *value)
{
    switch (option) {
    case ROLE:
        options.role = find_role(value);
        break;
    case SEED:
        options.seed = strtoull(value, NULL, 10);
        break;
    case HEALTHY:
        options.healthy = true;
        break;
    case FIFO:
        options.fifo = value;
        break;
    case PORT:
        options.port = atoi(value);
        break;
    case CONTROLLER:
        options.controller = value;
        break;
    case LIMIT:
        options.limit = value;
        break;
    default:
        exit(2);
    }
}

static void parse_options(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"role", required_argument, NULL, ROLE},   {"seed", required_argument, NULL, SEED},
        {"healthy", no_argument, NULL, HEALTHY},   {"fifo", required_argument, NULL, FIFO},
        {"port", required_argument, NULL, PORT},   {"controller", required_argument, NULL, CONTROLLER},
        {"limit", required_argument, NULL, LIMIT}, {0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1)
        apply(option, optarg);
    if (!options.role)
        fail("--role names no role");
}

int main(int argc, char **argv)
{
    parse_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    pthread_setname_np(pthread_self(), options.role->name);
    options.role->prepare();
    wait_for_go();
    options.role->run();
    return 0;
}
