// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "scenario_arguments.h"
#include "scenario_work.h"

#include <getopt.h>
#include <stdlib.h>

static void apply(const struct argument *argument, char *value)
{
    if (argument->text)
        *argument->text = value;
    if (argument->number)
        *argument->number = strtoull(value, NULL, 10);
    if (argument->count)
        *argument->count = atoi(value);
    if (argument->given)
        *argument->given = true;
}

bool read_arguments(int argc, char **argv, const struct argument *arguments)
{
    struct option options[MAX_ARGUMENTS + 1] = {0};
    int option;

    for (int i = 0; arguments[i].name; i++) {
        if (i == MAX_ARGUMENTS)
            fail("too many arguments in the list");
        options[i].name = arguments[i].name;
        options[i].has_arg = arguments[i].given ? no_argument : required_argument;
        options[i].val = i;
    }
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == '?')
            exit(2);
        apply(&arguments[option], optarg);
    }
    return optind < argc;
}
