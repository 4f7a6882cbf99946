// SPDX-License-Identifier: Apache-2.0
//
// The workload's command line.
#define _GNU_SOURCE
#include "workload.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options options = {.threads = 1, .calls = 1000, .devices = 1};

enum flag {
    THREADS = 1,
    CALLS,
    RATE,
    MIX,
    OP,
    BEHAVE,
    NS,
    RET,
    DURATION,
    WAIT_START,
    WAIT_END,
    DLOPEN,
    DEVICES,
    NESTED,
    DIE,
    JUMP,
    FORK,
    EXEC,
    CLOCKS,
    NAME,
};

static const struct option long_options[] = {
    {"threads", required_argument, NULL, THREADS},
    {"calls", required_argument, NULL, CALLS},
    {"rate", required_argument, NULL, RATE},
    {"mix", required_argument, NULL, MIX},
    {"op", required_argument, NULL, OP},
    {"behave", required_argument, NULL, BEHAVE},
    {"ns", required_argument, NULL, NS},
    {"ret", required_argument, NULL, RET},
    {"duration", required_argument, NULL, DURATION},
    {"wait-start", no_argument, NULL, WAIT_START},
    {"wait-end", no_argument, NULL, WAIT_END},
    {"dlopen", required_argument, NULL, DLOPEN},
    {"devices", required_argument, NULL, DEVICES},
    {"nested", no_argument, NULL, NESTED},
    {"die-inside", no_argument, NULL, DIE},
    {"longjmp", no_argument, NULL, JUMP},
    {"fork-inside", no_argument, NULL, FORK},
    {"exec-self", no_argument, NULL, EXEC},
    {"clocks", no_argument, NULL, CLOCKS},
    {"name", required_argument, NULL, NAME},
    {0},
};

static enum fake_mode mode_named(const char *name)
{
    static const char *const names[] = {"return", "burn", "sleep", "futex", "pipe", "io"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(name, names[i]) == 0)
            return (enum fake_mode)i;
    fail("--behave", name);
}

static struct behaviour *new_behaviour(const char *op)
{
    if (options.behaviour_count == MAX_PLANS)
        fail("--op", "too many");
    options.behaviours[options.behaviour_count].op = op;
    return &options.behaviours[options.behaviour_count++];
}

static struct behaviour *last_behaviour(void)
{
    if (options.behaviour_count == 0)
        fail("--behave, --ns and --ret", "come after --op");
    return &options.behaviours[options.behaviour_count - 1];
}

// Thread names may hold any byte: \xNN stands for one.
static char *unescape(const char *text)
{
    char *result = calloc(1, strlen(text) + 1), *at = result;

    for (; result && *text; text++) {
        unsigned byte;

        if (sscanf(text, "\\x%2x", &byte) == 1) {
            *at++ = (char)byte;
            text += 3;
        } else {
            *at++ = *text;
        }
    }
    return result;
}

static void apply(int option, char *value)
{
    switch (option) {
    case THREADS:
        options.threads = atoi(value);
        break;
    case CALLS:
        options.calls = strtoull(value, NULL, 10);
        break;
    case RATE:
        options.rate = atof(value);
        break;
    case MIX:
        options.mix = value;
        break;
    case OP:
        new_behaviour(value);
        break;
    case BEHAVE:
        last_behaviour()->mode = mode_named(value);
        break;
    case NS:
        last_behaviour()->ns = strtoull(value, NULL, 10);
        break;
    case RET:
        last_behaviour()->ret = atoi(value);
        break;
    case DURATION:
        options.duration_s = atof(value);
        break;
    case WAIT_START:
        options.wait_start = true;
        break;
    case WAIT_END:
        options.wait_end = true;
        break;
    case DLOPEN:
        options.driver_path = value;
        break;
    case DEVICES:
        options.devices = atoi(value);
        break;
    case NESTED:
        options.runtime_layer = true;
        break;
    case DIE:
        options.fault = DIE_INSIDE;
        break;
    case JUMP:
        options.fault = LONGJMP;
        break;
    case FORK:
        options.fault = FORK_INSIDE;
        break;
    case EXEC:
        options.exec_self = true;
        break;
    case CLOCKS:
        options.clocks = true;
        break;
    case NAME:
        options.name = unescape(value);
        break;
    default:
        exit(2);
    }
}

void parse_options(int argc, char **argv)
{
    int option;

    options.argv = argv;
    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1)
        apply(option, optarg);
    if (optind < argc)
        fail("unknown argument", argv[optind]);
    if (options.threads < 0 || options.threads > MAX_THREADS || options.devices < 1)
        fail("--threads or --devices", "out of range");
}
