/* SPDX-License-Identifier: Apache-2.0 */
/*
 * info.c - `shunt info`: what Shunt sees and how it would decide.
 */
#include "tools/info/info.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "algorithms/algorithm.h"
#include "tools/base/gpus.h"
#include "tools/base/tool.h"

static const char help[] =
    "usage: shunt info [--topology [FILE] [--dump FILE]]\n\n"
    "Prints the versions of Shunt and of the real NCCL that it found, the devices and their links, the settings in\n"
    "force with their origins, and the decision table of each collective on this machine.\n\n"
    "  --topology       print instead GPUs, NICs, the links between them, the class that selects the table, the table\n"
    "  --topology FILE  the same of the machine that FILE describes, in NCCL's format (NCCL_TOPO_DUMP_FILE)\n"
    "  --dump FILE      write this machine in that format, for NCCL_TOPO_FILE\n"
    "  --help           print this\n";

typedef struct options {
    bool help, topology;
    const char *file; /* NULL: this machine */
    const char *dump;
} options_t;

static void print_devices(const tool_gpus_t *gpus)
{
    if (gpus->count == 0) {
        printf("GPUs: none (%s)\n", gpus->cuda_driver > 0 ? gpus->error : "no CUDA driver answers");
        return;
    }
    printf("GPUs: %u", gpus->count);
    if (gpus->driver[0] != '\0') {
        printf(", driver %s", gpus->driver);
    }
    printf(", CUDA %u.%u (built with %u.%u)\n", gpus->cuda_driver / 1000, gpus->cuda_driver % 1000 / 10,
           gpus->cuda_runtime / 1000, gpus->cuda_runtime % 1000 / 10);
    for (uint32_t i = 0; i < gpus->listed; i++) {
        const tool_gpu_t *gpu = &gpus->gpu[i];
        printf("  %2u  %s, %s, sm_%u, %u multiprocessors, %llu MiB\n", i, gpu->name, gpu->bus, gpu->capability,
               gpu->multiprocessors, (unsigned long long)(gpu->bytes >> 20));
    }
    static const char *const text[] = {".", "nvlink", "peer", "none"};
    printf("Links:\n     ");
    for (uint32_t to = 0; to < gpus->listed; to++) {
        printf(" %6u", to);
    }
    printf("\n");
    for (uint32_t from = 0; from < gpus->listed; from++) {
        printf("  %2u ", from);
        for (uint32_t to = 0; to < gpus->listed; to++) {
            printf(" %6s", text[gpus->link[from][to]]);
        }
        printf("\n");
    }
}

static void print_nccl(const tool_shunt_t *shunt, const tool_nccl_t *nccl)
{
    const char *path = shunt->shunt_nccl_path();
    int code = 0;
    char version[16] = "?";
    if (path == NULL) {
        printf("NCCL: none found\n");
        return;
    }
    if (nccl->ncclGetVersion(&code) == ncclSuccess) {
        tool_version_text(code, version);
    }
    printf("NCCL: %s, %s\n", version, path);
}

static void print_settings(const tool_shunt_t *shunt)
{
    shunt_setting_t setting;
    printf("Settings:\n");
    for (uint32_t i = 0; shunt->shunt_setting(i, &setting) == 0; i++) {
        printf("  %s=%s  (%s)\n", setting.name, setting.value, setting.origin);
    }
}

static void print_table(const tool_shunt_t *shunt, const shunt_communicator_t *facts)
{
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        const char *name = alg_collective_name((alg_collective_t)c);
        char line[256];
        for (uint32_t i = 0; shunt->shunt_table_row(facts, name, i, line, sizeof line) == 0; i++) {
            if (i == 0) {
                printf("%s, %s:\n", name, facts->class_name);
            }
            printf("  %s\n", line);
        }
    }
}

/* A host communicator of four ranks, or one of all GPUs. False: there is none. */
static bool find_facts(const tool_shunt_t *shunt, const char *file, shunt_communicator_t *facts)
{
    *facts = (shunt_communicator_t){.size = sizeof *facts};
    if (file == NULL && shunt->shunt_host_mode() == 1) {
        snprintf(facts->class_name, sizeof facts->class_name, "host-4");
        return true;
    }
    return shunt->shunt_topology_class(file, facts) == 0 && facts->ranks > 0;
}

static int write_file(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    bool good = out != NULL && fputs(text, out) >= 0;
    good = out != NULL && fclose(out) == 0 && good;
    if (!good) {
        fprintf(stderr, "shunt info: %s: %s\n", path, strerror(errno));
    }
    return good ? TOOL_OK : TOOL_FAILED;
}

static int print_topology(const tool_shunt_t *shunt, const options_t *options)
{
    static char text[1 << 20]; /* several times what the largest machine takes */
    if (shunt->shunt_topology(options->file, 0, text, sizeof text) < 0) {
        fprintf(stderr, "shunt info: %s\n", text);
        return TOOL_FAILED;
    }
    fputs(text, stdout);
    shunt_communicator_t facts;
    if (find_facts(shunt, options->file, &facts)) {
        print_table(shunt, &facts);
    }
    if (options->dump == NULL) {
        return TOOL_OK;
    }
    if (shunt->shunt_topology(options->file, 1, text, sizeof text) < 0) {
        fprintf(stderr, "shunt info: %s\n", text);
        return TOOL_FAILED;
    }
    return write_file(options->dump, text);
}

static int parse(int argc, char **argv, options_t *options)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc && argv[i + 1][0] != '-' ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            options->help = true;
        } else if (strcmp(argv[i], "--topology") == 0) {
            options->topology = true;
            options->file = value;
            i += value != NULL;
        } else if (strcmp(argv[i], "--dump") == 0 && value != NULL) {
            options->dump = value;
            i++;
        } else {
            return tool_usage("info", "%s is not an argument of it", argv[i]);
        }
    }
    if (options->dump != NULL && !options->topology) {
        return tool_usage("info", "--dump goes with --topology");
    }
    return TOOL_OK;
}

int tool_info(int argc, char **argv)
{
    options_t options = {0};
    int fault = parse(argc, argv, &options);
    if (fault != TOOL_OK) {
        return fault;
    }
    if (options.help) {
        fputs(help, stdout);
        return TOOL_OK;
    }
    tool_warn_of_names("info");
    tool_shunt_t shunt;
    tool_nccl_t nccl;
    char error[TOOL_ERROR_BYTES];
    char library[PATH_MAX];
    if (!tool_library_path(library, error) || !tool_open_shunt(&shunt, &nccl, error)) {
        fprintf(stderr, "shunt info: %s\n", error);
        return TOOL_FAILED;
    }
    if (options.topology) {
        return print_topology(&shunt, &options);
    }
    int version = shunt.shunt_version();
    bool host = shunt.shunt_host_mode() == 1;
    printf("Shunt: %d.%d.%d, %s\n", version / 10000, version / 100 % 100, version % 100, library);
    print_nccl(&shunt, &nccl);
    printf("Device: %s\n", host ? "host (ranks share memory, no GPU is used)" : "CUDA");
    static tool_gpus_t gpus;
    tool_gpus_read(&gpus);
    print_devices(&gpus);
    print_settings(&shunt);
    shunt_communicator_t facts;
    if (find_facts(&shunt, NULL, &facts)) {
        print_table(&shunt, &facts);
    }
    return TOOL_OK;
}
