/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c - `shunt watch`: its options, and the loop.
 */
#include "tools/watch/watch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/base/output.h"
#include "tools/base/terminal.h"
#include "tools/base/tool.h"

static const char help[] = "usage: shunt watch [PID | --all] [OPTIONS]\n\n"
                           "Shows the communicators of running processes of this node: for each rank its last call, "
                           "the call that it waits in,\n"
                           "and for how long. Where a call has waited a second, its communicator comes first, and the "
                           "ranks that it waits for\n"
                           "come before the others, with what they do. It reads memory that the processes share with "
                           "it and asks them nothing,\n"
                           "so it works on a job that hangs. Processes of other users are shown to root alone. Without "
                           "--once it goes on, once a\n"
                           "second.\n\n"
                           "  PID           of this process alone\n"
                           "  --all         of all processes (default)\n"
                           "  --once        once\n"
                           "  --json        as JSON, a line each time, without the text\n"
                           "  --json FILE   to FILE; to standard output with -, and the text to standard error\n"
                           "  --help        print this\n\n"
                           "Exit status: 0, 1 if the process has no record (no communicator under Shunt, or it may not "
                           "be looked at), 2 for a\n"
                           "wrong option.\n";

typedef struct options {
    pid_t pid; /* 0: all processes */
    bool once, help;
    const char *json; /* path; NULL: none */
    bool no_text;     /* --json without a file */
} options_t;

/* Whether the word is --json's file: a number is a process's id. */
static bool is_file(const char *word)
{
    uint64_t pid;
    return tool_is_value(word) && !tool_number(word, 1, INT_MAX, &pid);
}

static int parse(int argc, char **argv, options_t *options)
{
    *options = (options_t){0};
    for (int i = 1; i < argc; i++) {
        uint64_t pid;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            options->help = true;
        } else if (strcmp(argv[i], "--once") == 0) {
            options->once = true;
        } else if (strcmp(argv[i], "--json") == 0) {
            options->no_text = !is_file(argv[i + 1]);
            options->json = options->no_text ? "-" : argv[++i];
        } else if (strcmp(argv[i], "--all") == 0) {
            options->pid = 0;
        } else if (tool_number(argv[i], 1, INT_MAX, &pid)) {
            options->pid = (pid_t)pid;
        } else {
            return tool_usage("watch", "%s is neither a process id nor an option", argv[i]);
        }
    }
    return TOOL_OK;
}

/* `text`: NULL for none. */
static void print(const options_t *options, const watch_sight_t *sight, const watch_comm_t *comm, int comms, FILE *text,
                  FILE *json)
{
    if (json != NULL) {
        watch_print_json(sight, comm, comms, json);
        fflush(json);
    }
    if (text == NULL) {
        return;
    }
    if (!options->once && tool_is_terminal(text)) {
        fprintf(text, "\033[H\033[2J");
    }
    watch_print(sight, comm, comms, text);
    if (comms == 0 && (options->pid == 0 || sight->books > 0)) {
        fprintf(text, "no communicators\n");
    }
    fflush(text);
}

static int show(const options_t *options, FILE *text, FILE *json)
{
    watch_sight_t sight;
    watch_comm_t *comm = NULL;
    if (!watch_read(options->pid, &sight)) {
        fprintf(stderr, "shunt watch: out of memory\n");
        return TOOL_FAILED;
    }
    const int comms = watch_judge(&sight, &comm);
    const bool none = options->pid != 0 && sight.books == 0;
    if (comms >= 0) {
        print(options, &sight, comm, comms, text, json);
    }
    if (none) {
        fprintf(stderr,
                "shunt watch: process %d has no record: it has made no communicator under Shunt, has "
                "SHUNT_RECORD=0, or is another user's\n",
                (int)options->pid);
    }
    free(comm);
    watch_free(&sight);
    return none || comms < 0 ? TOOL_FAILED : TOOL_OK;
}

int tool_watch(int argc, char **argv)
{
    options_t options;
    int status = parse(argc, argv, &options);
    if (status != TOOL_OK || options.help) {
        if (options.help) {
            fputs(help, stdout);
        }
        return status;
    }
    FILE *json, *text = options.no_text ? NULL : tool_output_text(options.json);
    if (!tool_output_open("watch", options.json, &json)) {
        return TOOL_FAILED;
    }
    do {
        status = show(&options, text, json);
        if (!options.once && status == TOOL_OK) {
            sleep(1);
        }
    } while (!options.once && status == TOOL_OK && (text == NULL || !ferror(text)) && (json == NULL || !ferror(json)));
    return tool_output_close("watch", options.json, json) ? status : TOOL_FAILED;
}
