/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_options.c - the command line of `shunt bench`. Names follow nccl-tests.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "tools/base/output.h"
#include "tools/bench/bench.h"

const char bench_help[] =
    "usage: shunt bench [OPTIONS]\n\n"
    "Measures a collective between processes, one per rank: on the GPUs, or without a GPU on the CPU device. If "
    "there\n"
    "is a real NCCL, it is measured in the same run, in alternate rounds.\n\n"
    "  --collective NAME  allreduce reducescatter reduce allgather alltoall broadcast gather scatter sendrecv, or all\n"
    "                (default allreduce). sendrecv: each rank sends to the next and receives from the one before\n"
    "  --root N      root of reduce, broadcast, gather and scatter: a rank, or rotate for a new one in each call\n"
    "                (default 0)\n"
    "  -b SIZE       from this many bytes (default 1K); K, M and G are powers of 1024. Bytes are those of the larger\n"
    "                buffer of a rank, as nccl-tests count them\n"
    "  -e SIZE       to this many bytes (default 16M; CPU device 1M)\n"
    "  -f N          each size is N times the one before (default 2; CPU device 4)\n"
    "  -g N          ranks, 1 to 8 (default: every GPU; CPU device 4)\n"
    "  --launched    be one rank of those that torchrun, mpirun or srun started, on one node or several; they meet at\n"
    "                MASTER_ADDR, port MASTER_PORT + 1, and rank 0 reports\n"
    "  --secret FILE\n"
    "                what a rank of another node or user shows rank 0: a file of 16 to 64 bytes that you alone may\n"
    "                read, the same on all nodes (head -c 32 /dev/urandom)\n"
    "  -n N          calls of one timed run, and of one graph (default 50; CPU device 20)\n"
    "  -w N          calls before each timed run (default 10)\n"
    "  -d TYPE       int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2, or all\n"
    "                (default bfloat16)\n"
    "  -o OPERATOR   sum prod max min avg premulsum, or all (default sum); ignored where nothing is reduced\n"
    "  --rounds N    timed runs; the median counts (default 5)\n"
    "  --graph       capture the calls of a run into a CUDA graph and replay it\n"
    "  --place out|in|both\n"
    "                in place: output over input, or one within the other, as NCCL defines it (alltoall and sendrecv\n"
    "                have no such form); both, as nccl-tests measures: two rows a size (default out)\n"
    "  --in-place    the same as --place in\n"
    "  --messages    alltoall by sends and receives in a group\n"
    "  --roots       allgather by broadcasts, reducescatter by reduces, in a group: one of each root\n"
    "  --skew        all buffers one element off alignment, and one element fewer\n"
    "  --check 0|1   compare every element with the expected one, and the ranks' bits (default 1)\n"
    "  --csv FILE    write the rows as CSV; to standard output with -, and the table to standard error\n"
    "  --json FILE   write the rows as JSON; likewise\n"
    "  --no-nccl     do not measure the real NCCL\n"
    "  --floor       measure what this machine's links and launches allow, and print each time's ratio to that\n"
    "  --host-time   measure what a call costs the host, and a launch of an empty kernel in its place\n"
    "  --beside      measure the calls beside matrix products, too: milliseconds until both have ended\n"
    "  --choose      measure how long the library takes to choose what to do with a call (choice_ns)\n"
    "  --help        print this\n\n"
    "As in nccl-tests, whose long names are taken, too (--minbytes, --ngpus, --iters):\n\n"
    "  -c N          0 is --check 0\n"
    "  -F FILE       --csv FILE\n"
    "  -G N          --graph unless N is 0\n"
    "  -i SIZE       each size is so much more than the one before, without -f\n"
    "  -m N          N calls in a group (default 1); us is still the time of one\n"
    "  -r N          --root N\n"
    "  -t N          N times the ranks of -g (default there: 1); each is a process all the same\n"
    "  -z N          wait for each call, unless N is 0; calls of a graph are not waited for\n"
    "  -a N          3 alone: times are the slowest rank's\n"
    "  -p N          nothing: ranks always init in parallel\n\n"
    "Columns: us is the time of the slowest rank, the median over the rounds; algbw is bytes over time in GB/s; busbw\n"
    "is algbw times 2(n-1)/n for allreduce, 1 for reduce, broadcast and sendrecv, else (n-1)/n; ratio is NCCL's time\n"
    "over ours; floor_ratio is our time over the floor. With --host-time: call_ns is the host time of a call, "
    "launch_ns\n"
    "that of an empty kernel's launch, call_ratio their ratio; launch_us is the GPU's time from one empty kernel to "
    "the\n"
    "next, launch_ratio our time over it; sync_us is the time of one call and a wait for the stream. With --beside:\n"
    "beside_ms is the time of beside_calls calls and the products together, products_ms that of the products alone.\n"
    "Exit status: 0 if all elements were right, 1 if not or if a rank failed, 2 for a wrong option.\n";

enum {
    OPTION_ROUNDS = 256,
    OPTION_COLLECTIVE,
    OPTION_ROOT,
    OPTION_GRAPH,
    OPTION_PLACE,
    OPTION_IN_PLACE,
    OPTION_MESSAGES,
    OPTION_ROOTS,
    OPTION_SKEW,
    OPTION_CHECK,
    OPTION_CSV,
    OPTION_JSON,
    OPTION_NO_NCCL,
    OPTION_FLOOR,
    OPTION_HOST_TIME,
    OPTION_CHOOSE,
    OPTION_BESIDE,
    OPTION_LAUNCHED,
    OPTION_SECRET
};

#define ALIAS(name, letter) name, required_argument, NULL, letter /* an option of nccl-tests */

static const struct option long_options[] = {
    {ALIAS("minbytes", 'b')},
    {ALIAS("maxbytes", 'e')},
    {ALIAS("stepbytes", 'i')},
    {ALIAS("stepfactor", 'f')},
    {ALIAS("ngpus", 'g')},
    {ALIAS("nthreads", 't')},
    {ALIAS("iters", 'n')},
    {ALIAS("warmup_iters", 'w')},
    {ALIAS("agg_iters", 'm')},
    {ALIAS("datatype", 'd')},
    {ALIAS("op", 'o')},
    {ALIAS("blocking", 'z')},
    {ALIAS("cudagraph", 'G')},
    {ALIAS("average", 'a')},
    {ALIAS("parallel_init", 'p')},
    {ALIAS("output_file", 'F')},
    {ALIAS("timeout", 'T')}, /* from here on options without a meaning here: see instead_of */
    {ALIAS("report_cputime", 'C')},
    {ALIAS("stream_null", 'y')},
    {ALIAS("local_register", 'R')},
    {ALIAS("run_cycles", 'N')},
    {ALIAS("report_timestamps", 'S')},
    {ALIAS("memory_report", 'M')},
    {ALIAS("cta_policy", 'x')},
    {"rounds", required_argument, NULL, OPTION_ROUNDS},
    {"collective", required_argument, NULL, OPTION_COLLECTIVE},
    {"root", required_argument, NULL, OPTION_ROOT},
    {"graph", no_argument, NULL, OPTION_GRAPH},
    {"place", required_argument, NULL, OPTION_PLACE},
    {"in-place", no_argument, NULL, OPTION_IN_PLACE},
    {"messages", no_argument, NULL, OPTION_MESSAGES},
    {"roots", no_argument, NULL, OPTION_ROOTS},
    {"skew", no_argument, NULL, OPTION_SKEW},
    {"check", required_argument, NULL, OPTION_CHECK},
    {"csv", required_argument, NULL, OPTION_CSV},
    {"json", required_argument, NULL, OPTION_JSON},
    {"no-nccl", no_argument, NULL, OPTION_NO_NCCL},
    {"floor", no_argument, NULL, OPTION_FLOOR},
    {"host-time", no_argument, NULL, OPTION_HOST_TIME},
    {"choose", no_argument, NULL, OPTION_CHOOSE},
    {"beside", no_argument, NULL, OPTION_BESIDE},
    {"launched", no_argument, NULL, OPTION_LAUNCHED},
    {"secret", required_argument, NULL, OPTION_SECRET},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int number_option(const char *name, const char *text, uint32_t low, uint32_t high, uint32_t *value)
{
    uint64_t number = 0;
    if (!tool_number(text, low, high, &number)) {
        return tool_usage("bench", "%s %s: must be a number from %u to %u", name, text, low, high);
    }
    *value = (uint32_t)number;
    return TOOL_OK;
}

static int size_option(const char *name, const char *text, uint64_t *value)
{
    if (!tool_size(text, value)) {
        return tool_usage("bench", "%s %s: must be a size like 1024, 64K, 16M or 1G, at most 1024G", name, text);
    }
    return TOOL_OK;
}

static int type_option(const char *text, int32_t *index)
{
    if (strcmp(text, "all") == 0) {
        *index = -1;
        return TOOL_OK;
    }
    *index = bench_type_find(text);
    if (*index >= 0) {
        return TOOL_OK;
    }
    char names[256] = "";
    for (uint32_t i = 0; i < bench_type_count; i++) {
        strncat(names, " ", sizeof names - strlen(names) - 1);
        strncat(names, bench_types[i].name, sizeof names - strlen(names) - 1);
    }
    return tool_usage("bench", "-d %s: no such type; there are:%s", text, names);
}

static int op_option(const char *text, int32_t *index)
{
    if (strcmp(text, "all") == 0) {
        *index = -1;
        return TOOL_OK;
    }
    for (uint32_t i = 0; i < bench_op_count; i++) {
        if (strcmp(text, bench_ops[i].name) == 0) {
            *index = (int32_t)i;
            return TOOL_OK;
        }
    }
    if (strcmp(text, "mulsum") == 0) { /* the name in nccl-tests */
        return op_option("premulsum", index);
    }
    return tool_usage("bench", "-o %s: no such operator", text);
}

static int collective_option(const char *text, int32_t *collective)
{
    const alg_collective_t found = alg_collective_find(text);
    const bool all = strcmp(text, "all") == 0;
    *collective = all ? -1 : (int32_t)found;
    return all || found < ALG_COLLECTIVE_COUNT ? TOOL_OK
                                               : tool_usage("bench", "--collective %s: no such collective", text);
}

static int root_option(const char *text, uint32_t *root)
{
    *root = BENCH_ROTATE;
    if (strcmp(text, "all") == 0) {
        return tool_usage("bench", "--root all: one run has one root, or a new one in each call with rotate");
    }
    return strcmp(text, "rotate") == 0 ? TOOL_OK : number_option("--root", text, 0, BENCH_MAX_RANKS - 1, root);
}

static int check_option(const char *text, bool *check)
{
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
        return tool_usage("bench", "--check %s: must be 0 or 1", text);
    }
    *check = text[0] == '1';
    return TOOL_OK;
}

/* A switch is a number, as in nccl-tests: 0 is off. */
static int switch_option(const char *name, const char *text, bool *value)
{
    uint32_t number = 0;
    const int fault = number_option(name, text, 0, 100000, &number);
    *value = number != 0;
    return fault;
}

static int place_option(const char *text, bench_options_t *options)
{
    options->in_place = strcmp(text, "in") == 0;
    options->both_places = strcmp(text, "both") == 0;
    return options->in_place || options->both_places || strcmp(text, "out") == 0
               ? TOOL_OK
               : tool_usage("bench", "--place %s: must be out, in or both", text);
}

/* nccl-tests' choice of reported times: only 3, the slowest rank's. */
static int average_option(const char *text)
{
    uint32_t whose = 0;
    const int fault = number_option("-a", text, 0, 3, &whose);
    return fault != TOOL_OK || whose == 3
               ? fault
               : tool_usage("bench", "-a %u: the time is always the slowest rank's, which is -a 3", whose);
}

static int one_option(bench_options_t *options, int option)
{
    switch (option) {
    case 'b':
        options->sizes_given[0] = true;
        return size_option("-b", optarg, &options->from_bytes);
    case 'e':
        options->sizes_given[1] = true;
        return size_option("-e", optarg, &options->to_bytes);
    case 'f':
        return number_option("-f", optarg, 2, 1 << 20, &options->factor);
    case 'g':
        return number_option("-g", optarg, 1, BENCH_MAX_RANKS, &options->ranks);
    case 'n':
        return number_option("-n", optarg, 1, 100000, &options->calls);
    case 'w':
        return number_option("-w", optarg, 0, 100000, &options->warmup);
    case 'd':
        return type_option(optarg, &options->type);
    case 'o':
        return op_option(optarg, &options->op);
    case 'c':
        return switch_option("-c", optarg, &options->check);
    case 'G':
        return switch_option("-G", optarg, &options->graph);
    case 'i':
        return size_option("-i", optarg, &options->step_bytes);
    case 'm':
        return number_option("-m", optarg, 1, 4096, &options->grouped);
    case 't':
        return number_option("-t", optarg, 1, BENCH_MAX_RANKS, &options->times_ranks);
    case 'z':
        return switch_option("-z", optarg, &options->blocking);
    case 'a':
        return average_option(optarg);
    case 'p':
        return switch_option("-p", optarg, &(bool){false});
    case OPTION_COLLECTIVE:
        return collective_option(optarg, &options->collective);
    case 'r':
    case OPTION_ROOT:
        return root_option(optarg, &options->root);
    case OPTION_ROUNDS:
        return number_option("--rounds", optarg, 1, BENCH_MAX_ROUNDS, &options->rounds);
    case OPTION_GRAPH:
        options->graph = true;
        return TOOL_OK;
    case OPTION_PLACE:
        return place_option(optarg, options);
    case OPTION_IN_PLACE:
        return place_option("in", options);
    case OPTION_MESSAGES:
        options->messages = true;
        return TOOL_OK;
    case OPTION_ROOTS:
        options->roots = true;
        return TOOL_OK;
    case OPTION_SKEW:
        options->skew = true;
        return TOOL_OK;
    case OPTION_CHECK:
        return check_option(optarg, &options->check);
    case 'F':
    case OPTION_CSV:
        options->csv = optarg;
        return TOOL_OK;
    case OPTION_JSON:
        options->json = optarg;
        return TOOL_OK;
    case OPTION_NO_NCCL:
        options->nccl = false;
        return TOOL_OK;
    case OPTION_FLOOR:
        options->floor = true;
        return TOOL_OK;
    case OPTION_HOST_TIME:
        options->host_time = true;
        return TOOL_OK;
    case OPTION_CHOOSE:
        options->choose = true;
        return TOOL_OK;
    case OPTION_LAUNCHED:
        options->launch.on = true;
        return TOOL_OK;
    case OPTION_SECRET:
        options->launch.has_secret = true;
        return bench_secret_read(optarg, options->launch.secret);
    case OPTION_BESIDE:
        options->beside = true;
        return TOOL_OK;
    default:
        options->help = true;
        return TOOL_OK;
    }
}

static void keep_line(bench_options_t *options, int argc, char **argv)
{
    size_t used = (size_t)snprintf(options->line, sizeof options->line, "shunt");
    for (int i = 0; i < argc && used < sizeof options->line; i++) {
        used += (size_t)snprintf(options->line + used, sizeof options->line - used, " %s", argv[i]);
    }
}

/* Advice for options of nccl-tests that have another name here, or no meaning. */
static const char *instead_of(int letter)
{
    switch (letter) {
    case 'C':
        return "use --host-time";
    case 'D':
    case 'V':
    case 'x':
        return "it is about NCCL's own kernels: use nccl-tests";
    case 'J':
        return "use --json";
    case 'M':
        return "`shunt info` says what memory a communicator takes";
    case 'N':
        return "use --rounds";
    case 'R':
        return "buffers are as a program without registration has them";
    case 'S':
        return "the head of a file has its date";
    case 'T':
        return "a run ends when no rank makes progress for 60 s";
    case 'y':
        return "calls go to a stream of their own";
    default:
        return NULL;
    }
}

/* Report the option that getopt_long refused (':' means a missing value), or that has advice only. */
static int refused(int option, int argc, char **argv)
{
    const char *word = optind > 0 && optind <= argc ? argv[optind - 1] : "";
    const int letter = option == '?' || option == ':' ? optopt : option;
    const char *instead = instead_of(letter);
    if (instead != NULL) {
        return tool_usage("bench", "there is no option -%c: %s", letter, instead);
    }
    if (optopt != 0 && optopt < OPTION_ROUNDS) {
        return tool_usage("bench", option == ':' ? "option -%c needs a value" : "there is no option -%c", optopt);
    }
    const char *fault = option == ':' ? "needs a value" : optopt != 0 ? "takes no value" : "is unknown or ambiguous";
    return tool_usage("bench", "option %s %s", word, fault);
}

/* Checks and completes options that depend on each other. */
static int check_together(bench_options_t *options)
{
    const alg_collective_t collective = (alg_collective_t)options->collective;
    const bool single = options->blocking || options->grouped > 1;
    if (options->times_ranks > 1) {
        options->ranks = options->times_ranks * (options->ranks != 0 ? options->ranks : 1);
    }
    if (options->ranks > BENCH_MAX_RANKS) {
        return tool_usage("bench", "-t %u -g %u: at most %u ranks are measured", options->times_ranks,
                          options->ranks / options->times_ranks, BENCH_MAX_RANKS);
    }
    if (options->host_time && options->graph) {
        return tool_usage("bench", "--host-time measures eager calls; omit --graph");
    }
    if (single && (options->host_time || options->beside)) {
        return tool_usage("bench",
                          "-z and -m do not go with --host-time (whose sync_us is a call and a wait) or --beside");
    }
    if (tool_is_stdout(options->csv) && tool_is_stdout(options->json)) {
        return tool_usage("bench", "--csv - and --json - cannot both go to standard output");
    }
    if (options->in_place && options->collective >= 0 && !bench_has_place(collective)) {
        return tool_usage("bench", "--in-place: %s has no such form", alg_collective_name(collective));
    }
    if (options->messages && collective != ALG_ALL_TO_ALL) {
        return tool_usage("bench", "--messages is for --collective alltoall");
    }
    if (options->roots && collective != ALG_ALL_GATHER && collective != ALG_REDUCE_SCATTER) {
        return tool_usage("bench", "--roots is for --collective allgather or reducescatter");
    }
    return TOOL_OK;
}

int bench_options_parse(bench_options_t *options, int argc, char **argv)
{
    memset(options, 0, sizeof *options);
    options->from_bytes = 1024;
    options->warmup = 10;
    options->rounds = 5;
    options->check = true;
    options->nccl = true;
    int fault = type_option("bfloat16", &options->type);
    keep_line(options, argc, argv); /* before getopt reorders the arguments */
    opterr = 0;
    int option;
    while (fault == TOOL_OK &&
           (option = getopt_long(argc, argv, ":b:e:f:g:n:w:d:o:c:F:G:i:m:r:t:z:a:p:h", long_options, NULL)) != -1) {
        if (option == '?' || option == ':' || instead_of(option) != NULL) {
            return refused(option, argc, argv);
        }
        fault = one_option(options, option);
    }
    if (fault == TOOL_OK && optind < argc) {
        fault = tool_usage("bench", "%s is not an option", argv[optind]);
    }
    return fault == TOOL_OK ? check_together(options) : fault;
}

uint64_t bench_next_size(const bench_options_t *options, uint64_t bytes)
{
    return options->factor != 0 ? bytes * options->factor : bytes + options->step_bytes;
}

bool bench_measures_place(const bench_options_t *options, alg_collective_t collective, bool in_place)
{
    return in_place ? (options->in_place || options->both_places) && bench_has_place(collective) : !options->in_place;
}

/* NCCL has fp8 since 2.24, and reduces it on GPUs since sm_90. */
static bool supported(const bench_machine_t *machine, const bench_kind_t *kind)
{
    const bench_type_t *type = &bench_types[kind->type];
    if (machine->cpu || type->kind != BENCH_FLOAT || type->bytes != 1) {
        return true;
    }
    for (uint32_t i = 0; i < machine->gpus.listed && alg_collective_reduces(kind->collective); i++) {
        if (machine->gpus.gpu[i].capability < 90) {
            return false;
        }
    }
    return machine->nccl_version >= 22400;
}

uint64_t bench_count(const bench_options_t *options, const bench_kind_t *kind, uint64_t bytes)
{
    uint64_t count = bytes / bench_types[kind->type].bytes / alg_collective_blocks(kind->collective, options->ranks);
    return options->skew && count > 0 ? count - 1 : count;
}

static bool wanted(const bench_options_t *options, const bench_machine_t *machine, const bench_kind_t *kind)
{
    const bool known = !machine->cpu || (machine->collectives >> kind->collective & 1) != 0;
    if (options->collective == -1 ? !known : options->collective != (int32_t)kind->collective) {
        return false;
    }
    if (alg_collective_reduces(kind->collective) ? options->op != -1 && options->op != kind->op : kind->op != 0) {
        return false;
    }
    if (options->in_place && !bench_has_place(kind->collective)) {
        return false;
    }
    return options->type == -1 ? supported(machine, kind) : options->type == kind->type;
}

bool bench_next_kind(const bench_options_t *options, const bench_machine_t *machine, uint32_t *at, bench_kind_t *kind)
{
    while (*at < ALG_COLLECTIVE_COUNT * bench_type_count * bench_op_count) {
        const uint32_t index = (*at)++;
        *kind = (bench_kind_t){(alg_collective_t)(index / bench_op_count / bench_type_count),
                               (int32_t)(index / bench_op_count % bench_type_count), (int32_t)(index % bench_op_count)};
        if (wanted(options, machine, kind)) {
            return true;
        }
    }
    return false;
}
