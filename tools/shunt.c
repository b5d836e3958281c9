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

static int unknown(const char *name)
{
    fprintf(stderr, "shunt: there is no command %s; see: shunt --help\n", name);
    return TOOL_USAGE;
}

static const command_t *find(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

/* The general help, or that of a command. */
static int help_on(char *name)
{
    static char option[] = "--help";
    char *argv[] = {name, option, NULL};
    const command_t *command = name != NULL ? find(name) : NULL;
    if (name == NULL) {
        help(stdout);
        return TOOL_OK;
    }
    return command != NULL ? command->run(2, argv) : unknown(name);
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return TOOL_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        return help_on(argv[2]);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0 || strcmp(argv[1], "version") == 0) {
        printf("shunt %d.%d.%d\n", SHUNT_VERSION_MAJOR, SHUNT_VERSION_MINOR, SHUNT_VERSION_PATCH);
        return TOOL_OK;
    }
    const command_t *command = find(argv[1]);
    return command != NULL ? command->run(argc - 1, argv + 1) : unknown(argv[1]);
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
