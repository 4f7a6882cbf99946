// SPDX-License-Identifier: Apache-2.0
//
// A peer that makes a control group, and removes it when it ends: however the others end, nothing is left.
#define _GNU_SOURCE
#include "scenario_peer.h"

#include <mntent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256];
static bool is_unified;

// Where the controller's hierarchy is mounted: one of its own, or the unified one.
static void find_controller(void)
{
    FILE *mounts = setmntent("/proc/self/mounts", "r");
    struct mntent *mount;
    char unified[128] = "";

    while (mounts && (mount = getmntent(mounts))) {
        if (strcmp(mount->mnt_type, "cgroup") == 0 && hasmntopt(mount, options.controller)) {
            snprintf(folder, sizeof(folder), "%s/gpuwhy-scenario-%d", mount->mnt_dir, getpid());
            return;
        }
        if (strcmp(mount->mnt_type, "cgroup2") == 0)
            snprintf(unified, sizeof(unified), "%s", mount->mnt_dir);
    }
    if (!unified[0])
        fail("no control groups are mounted");
    is_unified = true;
    snprintf(folder, sizeof(folder), "%s/gpuwhy-scenario-%d", unified, getpid());
}

static void set(const char *name, const char *value)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "w");
    if (!file || fputs(value, file) < 0 || fclose(file) != 0) {
        rmdir(folder);
        fail("cannot limit the control group");
    }
}

// "QUOTA PERIOD" in microseconds.
static void limit_cpu(void)
{
    char quota[32], period[32];

    if (is_unified)
        return set("cpu.max", options.limit);
    if (sscanf(options.limit, "%31s %31s", quota, period) != 2)
        fail("--limit takes QUOTA PERIOD");
    set("cpu.cfs_period_us", period);
    set("cpu.cfs_quota_us", quota);
}

// Before all other groups: what holds its members up is the quota, and not what else the machine does.
static void weigh_most(void)
{
    set(is_unified ? "cpu.weight" : "cpu.shares", is_unified ? "10000" : "262144");
}

static void limit_memory(void)
{
    set(is_unified ? "memory.max" : "memory.limit_in_bytes", options.limit);
}

static void make_cgroup(void)
{
    char words[512];
    bool is_cpu;

    if (!options.controller)
        fail("--controller is missing");
    find_controller();
    if (mkdir(folder, 0755) != 0)
        fail("cannot make a control group");
    is_cpu = strcmp(options.controller, "cpu") == 0;
    if (is_cpu)
        weigh_most();
    if (options.limit)
        is_cpu ? limit_cpu() : limit_memory();
    snprintf(words, sizeof(words), " folder=%s", folder);
    tell_ready(words);
}

static void kill_members(void)
{
    char path[512];
    FILE *file;
    int pid;

    snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
    file = fopen(path, "r");
    while (file && fscanf(file, "%d", &pid) == 1)
        if (pid > 0)
            kill(pid, SIGKILL);
    if (file)
        fclose(file);
}

// Members are about to end by themselves, so that they are given a moment.
static void remove_cgroup(void)
{
    for (int i = 0; i < 400 && rmdir(folder) != 0; i++) {
        if (i >= 20)
            kill_members();
        sleep_ns(10 * MS);
    }
}

// Until the end of the input, whether anything goes or not.
static void keep_cgroup(void)
{
    char byte;

    make_cgroup();
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    remove_cgroup();
    exit(0);
}

const struct role cgroup = {.name = "cgroup", .prepare = keep_cgroup};
