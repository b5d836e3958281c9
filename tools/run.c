/*
 * run.c - `shunt run -- CMD`: the environment in which programs that link
 * NCCL, or open it by name, get Shunt; then CMD in this process's place.
 *
 * LD_PRELOAD serves whoever links libnccl.so.2 or opens it by that name. vLLM
 * and SGLang may open it by an absolute path, which a preload does not change,
 * so the variables that name that path are set too.
 */
#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] = "usage: shunt run [--] CMD [ARGUMENT...]\n\n"
                           "Runs CMD with Shunt's libnccl.so.2 in NCCL's place: puts it in front of LD_PRELOAD and\n"
                           "into VLLM_NCCL_SO_PATH and SGLANG_NCCL_SO_PATH. Exit status: CMD's; 127 if there is no\n"
                           "such program, 126 if it cannot be run.\n";

/* LD_PRELOAD splits its value at blanks and colons, and knows no quotes. */
static bool preload(const char *library)
{
    const char *old = getenv("LD_PRELOAD");
    if (old == NULL || old[0] == '\0') {
        return setenv("LD_PRELOAD", library, 1) == 0;
    }
    size_t size = strlen(library) + strlen(old) + 2;
    char *value = malloc(size);
    if (value == NULL) {
        return false;
    }
    snprintf(value, size, "%s:%s", library, old);
    bool set = setenv("LD_PRELOAD", value, 1) == 0;
    free(value);
    return set;
}

int tool_run(int argc, char **argv)
{
    int first = 1;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help, stdout);
        return TOOL_OK;
    }
    if (argc > 1 && strcmp(argv[1], "--") == 0) {
        first = 2;
    } else if (argc > 1 && argv[1][0] == '-') {
        return tool_usage("run", "option %s is unknown", argv[1]);
    }
    if (first >= argc) {
        return tool_usage("run", "no command to run");
    }
    char library[PATH_MAX];
    char error[TOOL_ERROR_BYTES];
    if (!tool_library_path(library, error)) {
        fprintf(stderr, "shunt run: %s\n", error);
        return TOOL_FAILED;
    }
    if (strpbrk(library, " \t:") != NULL) {
        fprintf(stderr, "shunt run: LD_PRELOAD cannot name a path with a blank or a colon: %s\n", library);
        return TOOL_FAILED;
    }
    if (!preload(library) || setenv("VLLM_NCCL_SO_PATH", library, 1) != 0 ||
        setenv("SGLANG_NCCL_SO_PATH", library, 1) != 0) {
        perror("shunt run");
        return TOOL_FAILED;
    }
    execvp(argv[first], argv + first);
    fprintf(stderr, "shunt run: %s: %s\n", argv[first], strerror(errno));
    return errno == ENOENT ? 127 : 126;
}
