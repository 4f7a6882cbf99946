// SPDX-License-Identifier: Apache-2.0
//
// A worker that the job forks and that wants more memory than its control group has.
#define _GNU_SOURCE
#include "scenario.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// The control group allows 32 MiB.
static const size_t MODEST = 8 * MIB, GREEDY = 128 * MIB;

static NOINLINE void work(void)
{
    char path[512];
    size_t bytes = options.healthy ? MODEST : GREEDY;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int procs;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(path, sizeof(path), "%s/cgroup.procs", options.cgroup);
    procs = open(path, O_WRONLY | O_CLOEXEC);
    if (procs < 0 || write(procs, "0", 1) != 1 || memory == MAP_FAILED)
        _exit(2);
    memset(memory, 1, bytes); // blame: oom
    _exit(0);
}

static int worker;
static bool has_ended;

// One that has ended is kept until the run is over, so that whoever looks at the processes finds it.
static void look_after_worker(int flags)
{
    siginfo_t end = {0};

    if (has_ended || waitid(P_PID, worker, &end, WEXITED | WNOWAIT | flags) != 0 || end.si_pid != worker)
        return;
    has_ended = true;
    if (end.si_code == CLD_KILLED && end.si_status == SIGKILL)
        blame_process(worker);
}

// One worker, when a third of the time is over.
static void employ_worker(struct dispatcher *dispatcher)
{
    (void)dispatcher;
    if (worker > 0)
        look_after_worker(WNOHANG);
    if (worker != 0 || share_done() < 0.33)
        return;
    worker = fork();
    if (worker == 0)
        work();
}

static void dismiss_worker(void)
{
    if (worker <= 0)
        return;
    look_after_worker(0);
    waitpid(worker, NULL, 0);
}

static void prepare(void)
{
    if (!options.cgroup)
        fail("--cgroup is missing");
}

const struct fault oom = {.name = "oom", .prepare = prepare, .end_step = employ_worker, .end = dismiss_worker};
