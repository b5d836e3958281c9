/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_options.c - the command line of `shunt tune`, and the cases it asks for.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "tools/base/output.h"
#include "tools/tune/tune.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

const char tune_help[] =
    "usage: shunt tune [OPTIONS]\n"
    "       shunt tune --check [OPTIONS]\n"
    "       shunt tune --diff TABLE TABLE\n"
    "       shunt tune --plot TABLE > PICTURE.svg\n\n"
    "Measures every algorithm with several grids against the real NCCL, one process per GPU, and the rates of the\n"
    "links. Writes a table into the cache folder, which every program on this machine then uses. Interrupted, or at "
    "its\n"
    "time limit, it keeps the results so far. With --check it measures the table's choice, the built-in choice and "
    "the\n"
    "real NCCL anew, and fails if the table is slower than 0.98 times the better of the other two at any size.\n\n"
    "  --collective NAMES  as for shunt bench, with commas (default: all)\n"
    "  -b SIZE       from this many bytes (default 1K); K, M and G are powers of 1024\n"
    "  -e SIZE       to this many bytes (default 256M; CPU device 1M): powers of two and a few between\n"
    "  -g N          only this number of ranks (default: 2, 3 ... all GPUs; CPU device up to 4)\n"
    "  -d TYPES      types, as for shunt bench, with commas (default bfloat16,float); collectives that only move\n"
    "                data use the first\n"
    "  --mode MODE   eager or captured: how calls are timed (default captured; CPU device eager)\n"
    "  --limit S     stop after this many seconds (default 170)\n"
    "  --table FILE  the table to write, or to check (default: SHUNT_TABLE, or this machine's in the cache folder)\n"
    "  --csv FILE    write what was measured as CSV; to standard output with -, and the text to standard error\n"
    "  --json FILE   write it as JSON (docs/settings.md has the names); likewise\n"
    "  --beside      measure candidates beside matrix products, too; one that gains there may be up to 3% slower\n"
    "                alone. With --check, too\n"
    "  --check       as above; no table is written\n"
    "  --diff A B    where two tables differ\n"
    "  --plot TABLE  which algorithm for which size, as a picture\n"
    "  --help        print this\n\n"
    "Exit status: 0, or 1 if something failed or the check found a slower size or is incomplete, or 2 for a wrong "
    "option.\n";

enum {
    OPTION_COLLECTIVE = 256,
    OPTION_MODE,
    OPTION_LIMIT,
    OPTION_TABLE,
    OPTION_CSV,
    OPTION_JSON,
    OPTION_CHECK,
    OPTION_BESIDE,
    OPTION_DIFF,
    OPTION_PLOT
};

static const struct option long_options[] = {
    {"collective", required_argument, NULL, OPTION_COLLECTIVE},
    {"mode", required_argument, NULL, OPTION_MODE},
    {"limit", required_argument, NULL, OPTION_LIMIT},
    {"table", required_argument, NULL, OPTION_TABLE},
    {"csv", required_argument, NULL, OPTION_CSV},
    {"json", required_argument, NULL, OPTION_JSON},
    {"check", no_argument, NULL, OPTION_CHECK},
    {"beside", no_argument, NULL, OPTION_BESIDE},
    {"diff", no_argument, NULL, OPTION_DIFF},
    {"plot", required_argument, NULL, OPTION_PLOT},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int size_option(const char *name, const char *text, uint64_t *value)
{
    if (!tool_size(text, value)) {
        return tool_usage("tune", "%s %s: must be a size like 1024, 64K, 16M or 1G, at most 1024G", name, text);
    }
    return TOOL_OK;
}

static int number_option(const char *name, const char *text, uint32_t low, uint32_t high, uint32_t *value)
{
    uint64_t number = 0;
    if (!tool_number(text, low, high, &number)) {
        return tool_usage("tune", "%s %s: must be a number from %u to %u", name, text, low, high);
    }
    *value = (uint32_t)number;
    return TOOL_OK;
}

static int limit_option(const char *text, double *limit_s)
{
    uint32_t seconds = 0;
    const int fault = number_option("--limit", text, 1, 86400, &seconds);
    *limit_s = seconds;
    return fault;
}

static int types_option(char *text, uint32_t *types)
{
    *types = 0;
    for (char *name = strtok(text, ","); name != NULL; name = strtok(NULL, ",")) {
        int32_t index = bench_type_find(name);
        if (index < 0) {
            return tool_usage("tune", "-d %s: no such type", name);
        }
        *types |= 1u << index;
    }
    return *types != 0 ? TOOL_OK : tool_usage("tune", "-d: no types are given");
}

static int collectives_option(char *text, uint32_t *collectives)
{
    *collectives = 0;
    for (char *name = strtok(text, ","); name != NULL; name = strtok(NULL, ",")) {
        const alg_collective_t found = alg_collective_find(name);
        if (found == ALG_COLLECTIVE_COUNT && strcmp(name, "all") != 0) {
            return tool_usage("tune", "--collective %s: no such collective", name);
        }
        *collectives |= found == ALG_COLLECTIVE_COUNT ? (1u << ALG_COLLECTIVE_COUNT) - 1 : 1u << found;
    }
    return *collectives != 0 ? TOOL_OK : tool_usage("tune", "--collective: no names are given");
}

static int mode_option(const char *text, tune_options_t *options)
{
    if (strcmp(text, "eager") != 0 && strcmp(text, "captured") != 0) {
        return tool_usage("tune", "--mode %s: must be eager or captured", text);
    }
    options->eager = text[0] == 'e';
    options->mode_given = true;
    return TOOL_OK;
}

/* Where a script's variable is empty, the next option would be taken for the file. */
static int file_option(const char *name, const char *text, const char **file)
{
    *file = text;
    return text[0] != '\0' && tool_is_value(text) ? TOOL_OK : tool_usage("tune", "%s needs the name of a file", name);
}

static int one_option(tune_options_t *options, int option)
{
    switch (option) {
    case 'b':
        return size_option("-b", optarg, &options->from_bytes);
    case 'e':
        options->to_given = true;
        return size_option("-e", optarg, &options->to_bytes);
    case 'g':
        return number_option("-g", optarg, 2, BENCH_MAX_RANKS, &options->ranks);
    case 'd':
        return types_option(optarg, &options->types);
    case OPTION_COLLECTIVE:
        return collectives_option(optarg, &options->collectives);
    case OPTION_MODE:
        return mode_option(optarg, options);
    case OPTION_LIMIT:
        return limit_option(optarg, &options->limit_s);
    case OPTION_TABLE:
        return file_option("--table", optarg, &options->table);
    case OPTION_CSV:
        return file_option("--csv", optarg, &options->csv);
    case OPTION_JSON:
        return file_option("--json", optarg, &options->json);
    case OPTION_CHECK:
        options->check = true;
        return TOOL_OK;
    case OPTION_BESIDE:
        options->beside = true;
        return TOOL_OK;
    case OPTION_PLOT:
        options->plot = optarg;
        return TOOL_OK;
    case OPTION_DIFF:
        options->diff[0] = ""; /* parse sets both names: they follow the options */
        return TOOL_OK;
    default:
        options->help = true;
        return TOOL_OK;
    }
}

static void keep_line(tune_options_t *options, int argc, char **argv)
{
    size_t used = (size_t)snprintf(options->line, sizeof options->line, "shunt");
    for (int i = 0; i < argc && used < sizeof options->line; i++) {
        used += (size_t)snprintf(options->line + used, sizeof options->line - used, " %s", argv[i]);
    }
}

static int rest(tune_options_t *options, int argc, char **argv)
{
    if (tool_is_stdout(options->csv) && tool_is_stdout(options->json)) {
        return tool_usage("tune", "--csv - and --json - cannot both go to standard output");
    }
    if ((options->csv != NULL || options->json != NULL) && (options->diff[0] != NULL || options->plot != NULL)) {
        return tool_usage("tune", "--csv and --json are for what is measured, not for --diff or --plot");
    }
    if (options->diff[0] != NULL) {
        if (argc - optind != 2) {
            return tool_usage("tune", "--diff: needs two tables");
        }
        options->diff[0] = argv[optind];
        options->diff[1] = argv[optind + 1];
        return TOOL_OK;
    }
    return optind < argc ? tool_usage("tune", "%s is not an option", argv[optind]) : TOOL_OK;
}

int tune_options_parse(tune_options_t *options, int argc, char **argv)
{
    memset(options, 0, sizeof *options);
    options->from_bytes = KIB;
    options->to_bytes = 256 * MIB;
    options->collectives = (1u << ALG_COLLECTIVE_COUNT) - 1;
    options->types = 1u << bench_type_find("bfloat16") | 1u << bench_type_find("float");
    options->limit_s = 170;
    keep_line(options, argc, argv); /* before getopt reorders the arguments */
    int fault = TOOL_OK, option;
    opterr = 0;
    while (fault == TOOL_OK && (option = getopt_long(argc, argv, ":b:e:g:d:h", long_options, NULL)) != -1) {
        if (option == '?' || option == ':') {
            return tool_usage("tune", option == ':' ? "option %s needs a value" : "option %s is unknown",
                              argv[optind - 1]);
        }
        fault = one_option(options, option);
    }
    return fault == TOOL_OK ? rest(options, argc, argv) : fault;
}

static void add_size(tune_options_t *options, uint64_t bytes)
{
    if (bytes >= options->from_bytes && bytes <= options->to_bytes && options->sizes < TUNE_MOST_SIZES) {
        options->size[options->sizes++] = bytes;
    }
}

/* Powers of two, both ends, and a size where algorithms usually change. */
static void fill_sizes(tune_options_t *options)
{
    uint64_t power = 1;
    while (power < options->from_bytes) {
        power *= 2;
    }
    if (power != options->from_bytes) {
        add_size(options, options->from_bytes);
    }
    for (; power <= options->to_bytes; power *= 2) {
        add_size(options, power);
        if (power >= 256 * KIB && power <= 8 * MIB) {
            add_size(options, power + power / 2);
        }
    }
    if (options->size[options->sizes - 1] != options->to_bytes) {
        add_size(options, options->to_bytes);
    }
}

uint32_t tune_next_type(const tune_options_t *options, alg_collective_t collective, uint32_t type)
{
    const uint32_t types = alg_collective_reduces(collective) ? options->types : options->types & -options->types;
    while (type < bench_type_count && (types >> type & 1) == 0) {
        type++;
    }
    return type;
}

int tune_complete(tune_options_t *options, const bench_machine_t *machine)
{
    if (machine->cpu) {
        if (options->beside || (options->mode_given && !options->eager)) {
            return tool_usage("tune", "%s needs a GPU", options->beside ? "--beside" : "--mode captured");
        }
        options->eager = true;
        options->to_bytes = options->to_given ? options->to_bytes : MIB;
    } else if (bench_device_cuda == NULL || machine->gpus.count < 2) {
        fprintf(stderr, "shunt tune: needs at least two GPUs%s%s\n", machine->gpus.error[0] != '\0' ? ": " : "",
                machine->gpus.error);
        return TOOL_FAILED;
    } else if (options->ranks > machine->gpus.count) {
        return tool_usage("tune", "-g %u: there are %u GPUs", options->ranks, machine->gpus.count);
    }
    if (options->from_bytes > options->to_bytes) {
        return tool_usage("tune", "-b is more than -e");
    }
    options->collectives &= machine->collectives;
    if (options->collectives == 0) {
        return tool_usage("tune", "--collective: Shunt has no algorithm for it here");
    }
    fill_sizes(options);
    return TOOL_OK;
}
