// SPDX-License-Identifier: Apache-2.0
//
// A process next to a victim, in one of several roles:
//
//     scenario_peer --role NAME --seed N [--healthy] [--fifo PATH] [--port N] [--controller NAME --limit TEXT]
//
// "go" on stdin starts it, the end of stdin ends it.
#define _GNU_SOURCE
#include "scenario_peer.h"
#include "scenario_arguments.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

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

static void parse_options(int argc, char **argv)
{
    const char *role = "";
    const struct argument arguments[] = {
        {"role", .text = &role},
        {"seed", .number = &options.seed},
        {"healthy", .given = &options.healthy},
        {"fifo", .text = &options.fifo},
        {"port", .count = &options.port},
        {"controller", .text = &options.controller},
        {"limit", .text = &options.limit},
        {0},
    };

    read_arguments(argc, argv, arguments);
    options.role = find_role(role);
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
