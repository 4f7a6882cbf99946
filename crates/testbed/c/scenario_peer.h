// SPDX-License-Identifier: Apache-2.0
//
// The processes around a victim: the parts of the program `scenario_peer`, which uses no CUDA.
#ifndef SCENARIO_PEER_H
#define SCENARIO_PEER_H

#include "scenario_work.h"

struct peer_options {
    const struct role *role;
    uint64_t seed;
    bool healthy;
    const char *fifo;
    int port;
    const char *controller; // cpu or memory
    const char *limit;      // of the controller, see scenario_peer_cgroup.c
};

// `prepare` runs before the peer is ready and says what others must know, `run` after "go".
struct role {
    const char *name;
    void (*prepare)(void);
    void (*run)(void);
};

extern struct peer_options options;

extern const struct role hog, background, disk_hog;      // scenario_peer_hogs.c
extern const struct role loader, disk_loader;            // scenario_peer_inputs.c
extern const struct role server, client;                 // scenario_peer_inputs.c
extern const struct role cgroup;                         // scenario_peer_cgroup.c
extern const struct role check_direct_io, check_extents; // scenario_peer_checks.c

#endif
