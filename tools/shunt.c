/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shunt.c - the command `shunt`: runs the sub-command that its first argument names.
 */
#include <stdio.h>
#include <string.h>

#include "tools/base/tool.h"
#include "tools/bench/bench.h"
#include "tools/doctor/doctor.h"
#include "tools/info/info.h"
#include "tools/run/run.h"
#include "tools/tune/tune.h"
#include "tools/watch/watch.h"

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} command_t;

static const command_t commands[] = {
    {"bench", tool_bench, "measure collectives, ours and the real NCCL's in the same run"},
    {"tune", tool_tune, "measure every algorithm on this machine, and write a table that every program then uses"},
    {"run", tool_run, "run a program with Shunt in NCCL's place: shunt run -- CMD"},
    {"doctor", tool_doctor, "check whether Shunt serves programs here, and if not, why: shunt doctor [-- CMD]"},
    {"watch", tool_watch, "what the communicators of running processes do, and who is late: shunt watch [PID]"},
    {"info", tool_info, "devices, links, the NCCL found, settings, decision table"},
    {"settings", tool_settings, "the settings and what each means"},
};

static void help(FILE *to)
{
    fprintf(to, "usage: shunt COMMAND [OPTIONS]\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        fprintf(to, "  %-10s%s\n", commands[i].name, commands[i].help);
    }
    fprintf(to, "\nshunt COMMAND --help says more. SHUNT_LIB names another libnccl.so.2 than the one beside this "
                "program.\n");
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return TOOL_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        help(stdout);
        return TOOL_OK;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0 || strcmp(argv[1], "version") == 0) {
        printf("shunt %d.%d.%d\n", SHUNT_VERSION_MAJOR, SHUNT_VERSION_MINOR, SHUNT_VERSION_PATCH);
        return TOOL_OK;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "shunt: there is no command %s; see: shunt --help\n", argv[1]);
    return TOOL_USAGE;
}

int main(int argc, char **argv)
{
    const int status = run(argc, argv);
    if (status != TOOL_OK || (fflush(stdout) == 0 && ferror(stdout) == 0)) {
        return status;
    }
    fprintf(stderr, "shunt: standard output could not be written whole\n");
    return TOOL_FAILED;
}
