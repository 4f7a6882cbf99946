// SPDX-License-Identifier: Apache-2.0
//
// Whether this machine can do what a scenario needs: such a peer is ready, or says why it is not.
#define _GNU_SOURCE
#include "scenario_peer.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>

static void try_direct_io(void)
{
    open_scratch_file(MIB, true);
    tell_ready("");
    exit(0);
}

const struct role check_direct_io = {.name = "check-direct-io", .prepare = try_direct_io};

static void try_extents(void)
{
    struct fiemap map = {.fm_length = FIEMAP_MAX_OFFSET};

    if (ioctl(open_scratch_file(MIB, false), FS_IOC_FIEMAP, &map) != 0)
        fail("the scratch file's file system cannot list extents");
    tell_ready("");
    exit(0);
}

const struct role check_extents = {.name = "check-extents", .prepare = try_extents};
