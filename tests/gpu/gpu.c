/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c - see gpu.h. The first process never calls CUDA: a forked rank could not use it after that. */
#include "gpu.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <shunt.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

enum {
    SKIPPED = 77,
    LIMIT_SECONDS = 1800,
    POOL_BYTES = 768 << 20,
    POOL_ALIGNMENT = 256,
    POLICY_SECONDS = 60, /* as long as a call waits for a communicator's set-up */
    SHORT_BYTES = 1024,  /* Shunt takes all-reduces of so many bytes on every machine (gpu_refusals.c) */
    /* Types of short all-reduces, as bits: of all, and of those that Shunt took. */
    WORD_SHORT = RANKS_WORDS - 4,
    WORD_SHORT_TAKEN = RANKS_WORDS - 3,
    WORD_TAKEN = RANKS_WORDS - 2,
    WORD_FORWARDED = RANKS_WORDS - 1
};

/* Of a whole program, from all its runs. */
typedef struct gpu_counts {
    uint64_t taken, forwarded, types, types_taken;
} gpu_counts_t;

static bool g_allow_forward; /* set before the ranks are forked */

typedef struct gpu_plan {
    const gpu_options_t *options;
    const gpu_case_t *test;
    ranks_shape_t shape;
} gpu_plan_t;

/* ---- Calls ---------------------------------------------------------------------- */

size_t gpu_block_bytes(const data_buffer_t *buffer)
{
    /* from the base to the end of the guard behind, as data_buffer_make lays it out */
    return (size_t)(buffer->data - buffer->base) + buffer->size + DATA_GUARD_BYTES;
}

static uint8_t *pool_take(gpu_t *gpu, const data_buffer_t *buffer)
{
    uint8_t *memory = gpu->pool + gpu->pool_used;
    gpu->pool_used += (gpu_block_bytes(buffer) + POOL_ALIGNMENT - 1) / POOL_ALIGNMENT * POOL_ALIGNMENT;
    CHECK(gpu->pool_used <= POOL_BYTES);
    return memory;
}

void gpu_prepare(gpu_t *gpu, gpu_call_t *call, ncclComm_t comm, int rank, const data_case_t *c, gpu_shape_t shape)
{
    size_t size = c->count * ref_bytes(c->type);
    *call = (gpu_call_t){.gpu = gpu, .c = *c, .rank = rank, .comm = comm, .in_place = shape.in_place};
    CHECK(data_buffer_make(&call->output, size, shape.output_offset));
    call->device_output = pool_take(gpu, &call->output);
    if (shape.in_place) {
        data_fill(c, rank, call->output.data);
    } else {
        CHECK(data_buffer_make(&call->input, size, shape.input_offset));
        call->device_input = pool_take(gpu, &call->input);
        data_fill(c, rank, call->input.data);
    }
    gpu_load(call);
}

void gpu_load(gpu_call_t *call)
{
    cudaStream_t stream = call->gpu->stream;
    const data_buffer_t *out = &call->output, *in = &call->input;
    CHECK_CUDA(cudaMemcpyAsync(call->device_output, out->base, gpu_block_bytes(out), cudaMemcpyHostToDevice, stream));
    if (!call->in_place)
        CHECK_CUDA(cudaMemcpyAsync(call->device_input, in->base, gpu_block_bytes(in), cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
}

bool gpu_last_taken(void)
{
    int (*last)(shunt_decision_t *) = (int (*)(shunt_decision_t *))dlsym(RTLD_DEFAULT, "shunt_last_decision");
    shunt_decision_t decision = {.size = sizeof(decision)};
    return last && last(&decision) == 0 && decision.taken;
}

static void note_types(const gpu_call_t *call)
{
    _Atomic uint64_t *words = call->gpu->ranks->shared->words;
    const uint64_t type = UINT64_C(1) << call->c.type;
    if (call->c.count * ref_bytes(call->c.type) > SHORT_BYTES)
        return;
    atomic_fetch_or(&words[WORD_SHORT], type);
    if (call->taken)
        atomic_fetch_or(&words[WORD_SHORT_TAKEN], type);
}

ncclResult_t gpu_issue(gpu_call_t *call, cudaStream_t stream)
{
    const data_case_t *c = &call->c;
    uint8_t *out = call->device_output + (call->output.data - call->output.base);
    const uint8_t *in = call->in_place ? out : call->device_input + (call->input.data - call->input.base);
    ncclRedOp_t op = (ncclRedOp_t)c->op;
    uint64_t scalar = 0;
    ncclResult_t result;
    int before, after;

    if (c->op == REF_PREMUL) {
        data_scalar(c, call->rank, &scalar);
        CHECK_NCCL(ncclRedOpCreatePreMulSum(&op, &scalar, c->type, ncclScalarHostImmediate, call->comm));
    }
    CHECK_CUDA(cudaGetDevice(&before));
    result = ncclAllReduce(in, out, c->count, c->type, op, call->comm, stream);
    CHECK_CUDA(cudaGetDevice(&after));
    CHECK(before == after);
    CHECK_CUDA(cudaPeekAtLastError());
    call->taken = gpu_last_taken();
    CHECK(call->taken || result != ncclSuccess || !call->gpu->all_taken);
    note_types(call);
    if (c->op == REF_PREMUL)
        CHECK_NCCL(ncclRedOpDestroy(op, call->comm));
    return result;
}

/* Whether a call's result can be compared: infinities and NaN have no unique result under the real NCCL's order of
 * rounding. */
static bool comparable(const gpu_call_t *call)
{
    return call->taken || call->c.kind != DATA_BITS || !ref_is_float(call->c.type);
}

void gpu_verify(gpu_call_t *call, int shard, int shards, uint64_t *hash)
{
    data_buffer_t got = call->output;
    size_t bytes = gpu_block_bytes(&got);
    ref_precision_t precision = call->taken ? REF_STRICT : REF_BOUND;
    char fault[256];

    got.base = malloc(bytes);
    CHECK(got.base != NULL);
    got.data = got.base + (call->output.data - call->output.base);
    /* The rank's own stream: a copy on the default stream would wait for all other streams, and a graph or a rank of
     * the same process may still be running there. */
    CHECK_CUDA(cudaMemcpyAsync(got.base, call->device_output, bytes, cudaMemcpyDeviceToHost, call->gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(call->gpu->stream));
    CHECK(data_buffer_guarded(&got));
    if (comparable(call) &&
        !data_right(&call->c, precision, got.data, (size_t)shard, (size_t)shards, fault, sizeof(fault)))
        check_failed(__FILE__, __LINE__, call->taken ? "right result: " : "right result (forwarded): ", fault);
    if (call->taken)
        *hash = data_hash(*hash, got.data, call->c.count * ref_bytes(call->c.type));
    free(got.base);
    if (call->in_place)
        return;
    bytes = gpu_block_bytes(&call->input);
    got.base = malloc(bytes);
    CHECK(got.base != NULL);
    CHECK_CUDA(cudaMemcpyAsync(got.base, call->device_input, bytes, cudaMemcpyDeviceToHost, call->gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(call->gpu->stream));
    CHECK(memcmp(got.base, call->input.base, bytes) == 0);
    free(got.base);
}

void gpu_release(gpu_call_t *call)
{
    gpu_t *gpu = call->gpu;
    gpu->pool_used = (size_t)(call->device_output - gpu->pool);
    data_buffer_free(&call->output);
    if (!call->in_place)
        data_buffer_free(&call->input);
}

bool gpu_run_on(gpu_t *gpu, ncclComm_t comm, int rank, const data_case_t *c, gpu_shape_t shape, uint64_t *hash)
{
    gpu_call_t call;
    gpu_prepare(gpu, &call, comm, rank, c, shape);
    CHECK_NCCL(gpu_issue(&call, gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    gpu_verify(&call, rank, c->nranks, hash);
    gpu_release(&call);
    return call.taken;
}

void gpu_run(gpu_t *gpu, const data_case_t *c, gpu_shape_t shape, uint64_t *hash)
{
    (void)gpu_run_on(gpu, gpu->comm, gpu->rank, c, shape, hash);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double gpu_median(double *times, size_t count)
{
    qsort(times, count, sizeof(times[0]), by_size);
    return times[count / 2];
}

void gpu_agree(gpu_t *gpu, uint64_t hash)
{
    _Atomic uint64_t *words = gpu->ranks->shared->words;
    atomic_store(&words[gpu->rank], hash);
    ranks_barrier(gpu->ranks);
    CHECK(atomic_load(&words[0]) == hash);
    ranks_barrier(gpu->ranks);
}

data_case_t gpu_random_case(uint64_t *seed, int nranks, size_t largest)
{
    data_case_t c = {.nranks = nranks};
    c.type = (ncclDataType_t)data_below(seed, REF_TYPES);
    c.op = (ref_op_t)data_below(seed, REF_OPS);
    c.kind = (data_kind_t)data_below(seed, DATA_KINDS);
    c.count = 1 + data_below(seed, data_below(seed, 6) == 0 ? largest : 300);
    c.seed = data_random(seed);
    return c;
}

gpu_shape_t gpu_random_shape(uint64_t *seed, ncclDataType_t type)
{
    size_t bytes = ref_bytes(type);
    gpu_shape_t shape;
    shape.input_offset = data_below(seed, 16 / bytes + 1) * bytes;
    shape.output_offset = data_below(seed, 16 / bytes + 1) * bytes;
    shape.in_place = data_below(seed, 3) == 0;
    return shape;
}

static void statistics(uint64_t *taken, uint64_t *forwarded)
{
    int (*stats)(shunt_statistics_t *) = (int (*)(shunt_statistics_t *))dlsym(RTLD_DEFAULT, "shunt_stats");
    shunt_statistics_t s = {.size = sizeof(s)};
    if (stats)
        (void)stats(&s);
    *taken = s.calls_taken;
    *forwarded = s.calls_forwarded;
}

void gpu_policy(ncclComm_t comm, const char *policy)
{
    int (*set)(ncclComm_t, const char *) = (int (*)(ncclComm_t, const char *))dlsym(RTLD_DEFAULT, "shunt_set_policy");
    const double end = ranks_seconds() + POLICY_SECONDS;
    int error = 0;
    if (!set)
        return;
    while ((error = set(comm, policy)) != 0 && !g_allow_forward && ranks_seconds() < end)
        gpu_ready(comm); /* the set-up may go on in polls */
    CHECK(error == 0 || g_allow_forward);
}

void gpu_ready(ncclComm_t comm)
{
    ncclResult_t async = ncclInProgress;
    while (async == ncclInProgress) {
        CHECK_NCCL(ncclCommGetAsyncError(comm, &async));
        usleep(50);
    }
    CHECK_NCCL(async);
}

/* ---- Ranks ---------------------------------------------------------------------- */

void gpu_open(gpu_t *gpu)
{
    CHECK_CUDA(cudaSetDevice(gpu->device));
    CHECK_CUDA(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMalloc((void **)&gpu->pool, POOL_BYTES));
    gpu->pool_used = 0;
}

void gpu_close(gpu_t *gpu)
{
    CHECK_CUDA(cudaSetDevice(gpu->device));
    CHECK_CUDA(cudaStreamDestroy(gpu->stream));
    CHECK_CUDA(cudaFree(gpu->pool));
}

void gpu_count(gpu_t *gpu)
{
    ranks_shared_t *shared = gpu->ranks->shared;
    uint64_t taken, forwarded;
    statistics(&taken, &forwarded);
    atomic_fetch_add(&shared->words[WORD_TAKEN], taken);
    atomic_fetch_add(&shared->words[WORD_FORWARDED], forwarded);
}

/* Ranks that share a GPU leave long all-reduces to NCCL (scripts/gpu-test). */
static bool needs_all_taken(const gpu_plan_t *plan)
{
    return (plan->test->shapes & GPU_ALL_TAKEN) != 0 && !plan->options->allow_forward && !plan->options->share;
}

static void rank_main(ranks_t *ranks)
{
    const gpu_plan_t *plan = ranks->arg;
    gpu_t gpu = {.ranks = ranks, .rank = ranks->rank, .nranks = ranks->nranks, .options = plan->options};
    gpu.device = ranks->rank % plan->options->visible;
    gpu.all_taken = needs_all_taken(plan);
    gpu_open(&gpu);
    if (plan->shape != RANKS_SOLO) {
        double start = ranks_seconds();
        gpu.comm = ranks_init(ranks);
        gpu.init_seconds = ranks_seconds() - start;
    }
    plan->test->body(&gpu);
    if (plan->shape != RANKS_SOLO)
        ranks_barrier(ranks); /* no rank frees memory while another still runs */
    if (gpu.comm)
        CHECK_NCCL(ncclCommDestroy(gpu.comm));
    if (plan->shape == RANKS_PROCESSES || ranks->rank == 0)
        gpu_count(&gpu);
    gpu_close(&gpu);
}

/* ---- The program ------------------------------------------------------------------ */

/* A lent machine keeps no core. Frames without a name have an offset into their file, for addr2line. */
static void tell_crash(int number)
{
    void *frames[64];
    dprintf(STDERR_FILENO, "signal %d, the next descriptor is %d (-1: none is left); crashed here:\n", number,
            dup(STDERR_FILENO));
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    signal(number, SIG_DFL);
    raise(number); /* delivered at the return */
}

/* Forked ranks inherit it. */
static void watch_crashes(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGABRT};
    void *frame[1];
    (void)backtrace(frame, 1); /* the first one loads a library, which a crashed thread may not be able to */
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        signal(numbers[i], tell_crash);
}

static int visible_gpus(void)
{
    int status, count;
    pid_t child;
    fflush(NULL);
    child = fork();
    if (child == 0)
        _exit(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return 0;
    return WEXITSTATUS(status);
}

static int usage(const char *program)
{
    fprintf(stderr, "usage: %s [-g GPUS] [-t SECONDS] [-s SEED] [-k CASE] [--processes] [--share] [--allow-forward]\n",
            program);
    return 2;
}

static bool parse(gpu_options_t *options, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--allow-forward") == 0) {
            options->allow_forward = true;
            continue;
        }
        if (strcmp(argv[i], "--processes") == 0) {
            options->processes = true;
            continue;
        }
        if (strcmp(argv[i], "--share") == 0) {
            options->processes = options->share = true;
            continue;
        }
        if (!value || argv[i][0] != '-' || strlen(argv[i]) != 2)
            return false;
        if (argv[i][1] == 'g')
            options->gpus = atoi(value);
        else if (argv[i][1] == 't')
            options->seconds = atoi(value);
        else if (argv[i][1] == 's')
            options->seed = strtoull(value, NULL, 0);
        else if (argv[i][1] == 'k')
            options->only = value;
        else
            return false;
        i++;
    }
    return true;
}

static const char *shape_name(ranks_shape_t shape)
{
    static const char *const names[] = {"processes", "threads", "one thread"};
    return names[shape];
}

static int run_case(gpu_plan_t *plan, gpu_counts_t *counts)
{
    static const char *const every_size[] = {"SHUNT_DETERMINISTIC", "1", NULL};
    ranks_shared_t *shared = ranks_share();
    ranks_plan_t ranks = {.shape = plan->shape,
                          .nranks = plan->options->gpus,
                          .seconds = plan->test->seconds + plan->options->seconds,
                          .env = needs_all_taken(plan) ? every_size : NULL,
                          .body = rank_main,
                          .arg = plan,
                          .shared = shared};
    double start = ranks_seconds();
    int wrong = ranks_run(&ranks);
    uint64_t t = atomic_load(&shared->words[WORD_TAKEN]), f = atomic_load(&shared->words[WORD_FORWARDED]);
    printf("%s %s, %s: %.1f s, %llu calls taken, %llu forwarded\n", wrong ? "FAILED" : "ok", plan->test->name,
           shape_name(plan->shape), ranks_seconds() - start, (unsigned long long)t, (unsigned long long)f);
    fflush(stdout);
    counts->taken += t;
    counts->forwarded += f;
    counts->types |= atomic_load(&shared->words[WORD_SHORT]);
    counts->types_taken |= atomic_load(&shared->words[WORD_SHORT_TAKEN]);
    return wrong ? 1 : 0;
}

/* Calls that the real NCCL serves are compared by a looser bound, or not at all, so a test of Shunt needs some that
 * Shunt takes, of each type. */
static bool took_enough(const gpu_options_t *options, const gpu_counts_t *counts)
{
    if (options->allow_forward)
        return true;
    if (counts->taken == 0)
        printf("FAILED: Shunt took no call at all (--allow-forward permits that)\n");
    for (int type = 0; type < REF_TYPES && !options->share; type++) {
        if ((counts->types & ~counts->types_taken) >> type & 1)
            printf("FAILED: Shunt took no short all-reduce of %s (--allow-forward permits that)\n",
                   ref_type_name((ncclDataType_t)type));
    }
    return counts->taken > 0 && (options->share || (counts->types & ~counts->types_taken) == 0);
}

int gpu_main(int argc, char **argv, const gpu_case_t *cases, size_t count)
{
    gpu_options_t options = {.seconds = 10, .seed = (uint64_t)time(NULL) ^ ((uint64_t)getpid() << 32)};
    gpu_counts_t counts = {0};
    int visible, passed = 0, failed = 0;

    if (!parse(&options, argc, argv))
        return usage(argv[0]);
    alarm(LIMIT_SECONDS);
    watch_crashes();
    g_allow_forward = options.allow_forward;
    /* Multicast set-up can disable a shared machine's fabric; these tests need none of it. */
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", options.share ? "1" : "0", 1);
    options.visible = visible = visible_gpus();
    if (options.share && visible > 0)
        visible = REF_MAX_RANKS;
    if (visible < 2 || visible < options.gpus) {
        printf("SKIP: %d GPUs are visible, %d are needed\n", visible, options.gpus > 2 ? options.gpus : 2);
        return SKIPPED;
    }
    if (options.gpus < 2)
        options.gpus = options.share ? 2 : visible < REF_MAX_RANKS ? visible : REF_MAX_RANKS;
    printf("%d GPUs, seed %llu\n", options.gpus, (unsigned long long)options.seed);
    for (size_t i = 0; i < count; i++) {
        for (int shape = RANKS_PROCESSES; shape <= (options.processes ? RANKS_PROCESSES : RANKS_SOLO); shape++) {
            gpu_plan_t plan = {&options, &cases[i], (ranks_shape_t)shape};
            if (!(cases[i].shapes & (1u << shape)) || (options.only && strcmp(options.only, cases[i].name) != 0))
                continue;
            if (run_case(&plan, &counts))
                failed++;
            else
                passed++;
        }
    }
    printf("%d passed, %d failed; %llu calls taken by Shunt, %llu forwarded\n", passed, failed,
           (unsigned long long)counts.taken, (unsigned long long)counts.forwarded);
    return failed || passed == 0 || !took_enough(&options, &counts) ? 1 : 0;
}

size_t gpu_free_memory(gpu_t *gpu)
{
    size_t now, total;
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaMemGetInfo(&now, &total));
    ranks_barrier(gpu->ranks);
    return now;
}
