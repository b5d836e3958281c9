/* SPDX-License-Identifier: Apache-2.0 */
/*
 * info.c - `shunt info`: the machine as Shunt detects it, and the decisions that follow.
 */
#include "tools/info/info.h"

#include <stdio.h>
#include <string.h>

#include "algorithms/algorithm.h"
#include "tools/base/gpus.h"
#include "tools/base/json.h"
#include "tools/base/output.h"
#include "tools/base/tool.h"

static const char help[] =
    "usage: shunt info [--json FILE | --topology [FILE] [--dump FILE]]\n\n"
    "Prints the versions of Shunt and of the real NCCL that it found, the devices and their links, the settings in\n"
    "force with their origins, and the decision table of each collective on this machine.\n\n"
    "  --json FILE      write the same as JSON (docs/settings.md has the names); to standard output with -, and the "
    "text\n"
    "                   to standard error\n"
    "  --topology       print instead GPUs, NICs, the links between them, the class that selects the table, the table\n"
    "  --topology FILE  the same of the machine that FILE describes, in NCCL's format (NCCL_TOPO_DUMP_FILE)\n"
    "  --dump FILE      write this machine in that format, for NCCL_TOPO_FILE; with - as for --json\n"
    "  --help           print this\n";

typedef struct options {
    bool help, topology;
    const char *file; /* NULL: this machine */
    const char *dump;
    const char *json; /* file of --json; NULL: none */
} options_t;

typedef struct seen {
    char error[TOOL_ERROR_BYTES]; /* "": the other fields are filled in */
    char library[PATH_MAX];
    char version[16];
    char nccl_version[16]; /* "": unknown */
    const char *nccl_path; /* NULL: none found */
    bool cpu;
    tool_shunt_t shunt;
    tool_gpus_t gpus;
    shunt_communicator_t facts; /* ranks 0 and an empty class name: no communicator to describe */
} seen_t;

/* Describe a communicator of all GPUs, or of four ranks on the CPU device. False: none is possible. */
static bool find_facts(const tool_shunt_t *shunt, const char *file, shunt_communicator_t *facts)
{
    *facts = (shunt_communicator_t){.size = sizeof *facts};
    if (file == NULL && shunt->shunt_host_mode() == 1) {
        facts->ranks = 4;
        snprintf(facts->class_name, sizeof facts->class_name, "host-4");
        return true;
    }
    return shunt->shunt_topology_class(file, facts) == 0 && facts->ranks > 0;
}

/* Fill in `seen`. False after a message. */
static bool look(seen_t *seen)
{
    tool_nccl_t nccl;
    int code = 0;
    if (!tool_library_path(seen->library, seen->error) || !tool_open_shunt(&seen->shunt, &nccl, seen->error)) {
        fprintf(stderr, "shunt info: %s\n", seen->error);
        return false;
    }
    tool_version_text(seen->shunt.shunt_version(), seen->version);
    seen->nccl_path = seen->shunt.shunt_nccl_path();
    if (seen->nccl_path != NULL && nccl.ncclGetVersion(&code) == ncclSuccess) {
        tool_version_text(code, seen->nccl_version);
    }
    seen->cpu = seen->shunt.shunt_host_mode() == 1;
    tool_gpus_read(&seen->gpus);
    if (!find_facts(&seen->shunt, NULL, &seen->facts)) {
        seen->facts.ranks = 0;
    }
    return true;
}

static void print_devices(FILE *out, const tool_gpus_t *gpus)
{
    if (gpus->count == 0) {
        fprintf(out, "GPUs: none (%s)\n", gpus->cuda_driver > 0 ? gpus->error : "no CUDA driver answers");
        return;
    }
    fprintf(out, "GPUs: %u", gpus->count);
    if (gpus->driver[0] != '\0') {
        fprintf(out, ", driver %s", gpus->driver);
    }
    fprintf(out, ", CUDA %u.%u (built with %u.%u)\n", gpus->cuda_driver / 1000, gpus->cuda_driver % 1000 / 10,
            gpus->cuda_runtime / 1000, gpus->cuda_runtime % 1000 / 10);
    for (uint32_t i = 0; i < gpus->listed; i++) {
        const tool_gpu_t *gpu = &gpus->gpu[i];
        fprintf(out, "  %2u  %s, %s, sm_%u, %u multiprocessors, %llu MiB\n", i, gpu->name, gpu->bus, gpu->capability,
                gpu->multiprocessors, (unsigned long long)(gpu->bytes >> 20));
    }
    static const char *const text[] = {".", "nvlink", "peer", "none"};
    fprintf(out, "Links:\n     ");
    for (uint32_t to = 0; to < gpus->listed; to++) {
        fprintf(out, " %6u", to);
    }
    fprintf(out, "\n");
    for (uint32_t from = 0; from < gpus->listed; from++) {
        fprintf(out, "  %2u ", from);
        for (uint32_t to = 0; to < gpus->listed; to++) {
            fprintf(out, " %6s", text[gpus->link[from][to]]);
        }
        fprintf(out, "\n");
    }
}

static void print_nccl(FILE *out, const seen_t *seen)
{
    if (seen->nccl_path == NULL) {
        fprintf(out, "NCCL: none found\n");
    } else {
        fprintf(out, "NCCL: %s, %s\n", seen->nccl_version[0] != '\0' ? seen->nccl_version : "?", seen->nccl_path);
    }
}

static void print_settings(FILE *out, const tool_shunt_t *shunt)
{
    shunt_setting_t setting;
    fprintf(out, "Settings:\n");
    for (uint32_t i = 0; shunt->shunt_setting(i, &setting) == 0; i++) {
        fprintf(out, "  %s=%s  (%s)\n", setting.name, setting.value, setting.origin);
    }
}

static void print_tables(FILE *out, const tool_shunt_t *shunt, const shunt_communicator_t *facts)
{
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        const char *name = alg_collective_name((alg_collective_t)c);
        char line[256];
        for (uint32_t i = 0; shunt->shunt_table_row(facts, name, i, line, sizeof line) == 0; i++) {
            if (i == 0) {
                fprintf(out, "%s, %s:\n", name, facts->class_name);
            }
            fprintf(out, "  %s\n", line);
        }
    }
}

static void print_text(FILE *out, const seen_t *seen)
{
    fprintf(out, "Shunt: %s, %s\n", seen->version, seen->library);
    print_nccl(out, seen);
    fprintf(out, "Device: %s\n", seen->cpu ? "CPU (ranks share memory, no GPU is used)" : "CUDA");
    print_devices(out, &seen->gpus);
    print_settings(out, &seen->shunt);
    if (seen->facts.ranks > 0) {
        print_tables(out, &seen->shunt, &seen->facts);
    }
}

static void json_cuda_version(tool_json_t *json, const char *name, uint32_t code)
{
    char text[32] = "";
    if (code > 0) {
        snprintf(text, sizeof text, "%u.%u", code / 1000, code % 1000 / 10);
    }
    tool_json_word(json, name, text);
}

static void json_links(tool_json_t *json, const tool_gpus_t *gpus)
{
    static const char *const names[] = {"self", "nvlink", "peer", "none"};
    tool_json_begin(json, "links", '[');
    for (uint32_t from = 0; from < gpus->listed; from++) {
        tool_json_begin(json, NULL, '[');
        for (uint32_t to = 0; to < gpus->listed; to++) {
            tool_json_text(json, NULL, names[gpus->link[from][to]]);
        }
        tool_json_end(json, ']');
    }
    tool_json_end(json, ']');
}

static void json_devices(tool_json_t *json, const tool_gpus_t *gpus)
{
    tool_json_word(json, "driver", gpus->driver);
    json_cuda_version(json, "cuda", gpus->cuda_driver);
    json_cuda_version(json, "cuda_built", gpus->cuda_runtime);
    tool_json_word(json, "gpus_error", gpus->error);
    tool_json_value(json, "gpu_count", "%u", gpus->count);
    tool_json_begin(json, "gpus", '[');
    for (uint32_t i = 0; i < gpus->listed; i++) {
        const tool_gpu_t *gpu = &gpus->gpu[i];
        tool_json_begin(json, NULL, '{');
        tool_json_text(json, "name", gpu->name);
        tool_json_text(json, "bus", gpu->bus);
        tool_json_value(json, "sm", "%u", gpu->capability);
        tool_json_value(json, "multiprocessors", "%u", gpu->multiprocessors);
        tool_json_value(json, "memory_bytes", "%llu", (unsigned long long)gpu->bytes);
        tool_json_end(json, '}');
    }
    tool_json_end(json, ']');
    json_links(json, gpus);
}

static void json_settings(tool_json_t *json, const tool_shunt_t *shunt)
{
    shunt_setting_t setting;
    for (uint32_t i = 0; shunt->shunt_setting(i, &setting) == 0; i++) {
        tool_json_begin(json, NULL, '{');
        tool_json_text(json, "name", setting.name);
        tool_json_text(json, "value", setting.value);
        tool_json_text(json, "default", setting.initial);
        tool_json_text(json, "origin", setting.origin);
        tool_json_end(json, '}');
    }
}

static void json_tables(tool_json_t *json, const tool_shunt_t *shunt, const shunt_communicator_t *facts)
{
    char line[256];
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        const char *name = alg_collective_name((alg_collective_t)c);
        tool_json_begin(json, name, '[');
        for (uint32_t i = 0; shunt->shunt_table_row(facts, name, i, line, sizeof line) == 0; i++) {
            tool_json_text(json, NULL, line);
        }
        tool_json_end(json, ']');
    }
}

/* Every name is always present; unknown values are null. */
static void write_json(tool_json_t *json, const seen_t *seen)
{
    const bool opened = seen->error[0] == '\0', classed = seen->facts.ranks > 0;
    char machine[20] = "";
    if (classed) {
        snprintf(machine, sizeof machine, "%016llx", (unsigned long long)seen->facts.machine);
    }
    tool_json_begin(json, NULL, '{');
    tool_json_word(json, "error", seen->error);
    tool_json_word(json, "shunt", seen->version);
    tool_json_text(json, "library", opened ? seen->library : NULL);
    tool_json_word(json, "nccl", seen->nccl_version);
    tool_json_text(json, "nccl_path", seen->nccl_path);
    tool_json_text(json, "device", !opened ? NULL : seen->cpu ? "cpu" : "cuda");
    json_devices(json, &seen->gpus);
    tool_json_begin(json, "settings", '[');
    if (opened) {
        json_settings(json, &seen->shunt);
    }
    tool_json_end(json, ']');
    tool_json_word(json, "class", classed ? seen->facts.class_name : NULL);
    tool_json_word(json, "machine", machine);
    tool_json_begin(json, "tables", '{');
    if (classed) {
        json_tables(json, &seen->shunt, &seen->facts);
    }
    tool_json_end(json, '}');
    tool_json_end(json, '}');
}

static int print_topology(const options_t *options)
{
    static char text[1 << 20]; /* several times the text of the largest machine */
    tool_shunt_t shunt;
    FILE *out = tool_output_text(options->dump), *dump;
    if (!tool_open_shunt(&shunt, NULL, text) || shunt.shunt_topology(options->file, 0, text, sizeof text) < 0) {
        fprintf(stderr, "shunt info: %s\n", text);
        return TOOL_FAILED;
    }
    fputs(text, out);
    shunt_communicator_t facts;
    if (find_facts(&shunt, options->file, &facts)) {
        print_tables(out, &shunt, &facts);
    }
    if (options->dump == NULL) {
        return TOOL_OK;
    }
    if (shunt.shunt_topology(options->file, 1, text, sizeof text) < 0) {
        fprintf(stderr, "shunt info: %s\n", text);
        return TOOL_FAILED;
    }
    if (!tool_output_open("info", options->dump, &dump)) {
        return TOOL_FAILED;
    }
    fputs(text, dump);
    return tool_output_close("info", options->dump, dump) ? TOOL_OK : TOOL_FAILED;
}

static int print_all(const options_t *options)
{
    static seen_t seen;
    tool_json_t json = {.lines = 2};
    if (!tool_output_open("info", options->json, &json.file)) {
        return TOOL_FAILED;
    }
    const bool opened = look(&seen);
    if (opened) {
        print_text(tool_output_text(options->json), &seen);
    }
    write_json(&json, &seen);
    return tool_output_close("info", options->json, json.file) && opened ? TOOL_OK : TOOL_FAILED;
}

static int parse(int argc, char **argv, options_t *options)
{
    for (int i = 1; i < argc; i++) {
        const char *value = tool_is_value(argv[i + 1]) ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            options->help = true;
        } else if (strcmp(argv[i], "--topology") == 0) {
            options->topology = true;
            options->file = value;
            i += value != NULL;
        } else if (strcmp(argv[i], "--dump") == 0 && value != NULL) {
            options->dump = value;
            i++;
        } else if (strcmp(argv[i], "--json") == 0 && value != NULL) {
            options->json = value;
            i++;
        } else {
            return tool_usage("info", "unknown argument %s", argv[i]);
        }
    }
    if (options->dump != NULL && !options->topology) {
        return tool_usage("info", "--dump needs --topology");
    }
    if (options->json != NULL && options->topology) {
        return tool_usage("info", "--json does not go with --topology, which has --dump");
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
    return options.topology ? print_topology(&options) : print_all(&options);
}
