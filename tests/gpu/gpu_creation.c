/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the time to make a communicator, first and repeatedly over the same ranks, and checks that device memory
 * stays constant.
 *
 * -t SECONDS is its duration, up to 1000 cycles (100 take a minute or two, most of
 * it the real NCCL's). The real NCCL alone: SHUNT_ENABLE=0 and --allow-forward.
 */
#include "gpu.h"

enum { MOST = 1000, WORD_GO_ON = REF_MAX_RANKS, SLACK = 8 << 20 };

static void use(gpu_t *gpu, ncclComm_t comm, uint64_t *hash)
{
    data_case_t c = {ncclBfloat16, REF_SUM, DATA_RANDOM, 1, 4000, gpu->nranks};
    gpu_run_on(gpu, comm, gpu->rank, &c, (gpu_shape_t){0, 0, false}, hash);
}

/* Whether there is time for another cycle: rank 0 decides for all. */
static bool go_on(gpu_t *gpu, double end)
{
    _Atomic uint64_t *word = &gpu->ranks->shared->words[WORD_GO_ON];
    if (gpu->rank == 0)
        atomic_store(word, ranks_seconds() < end);
    ranks_barrier(gpu->ranks);
    bool more = atomic_load(word);
    ranks_barrier(gpu->ranks);
    return more;
}

static void report(double *seconds, int count, size_t settled, size_t now)
{
    double last = seconds[count - 1] * 1e3, second = seconds[1] * 1e3;
    printf("creation 1: %.1f ms; 2: %.1f ms; %d: %.1f ms;", seconds[0] * 1e3, second, count, last);
    printf(" median from 2 on: %.1f ms; device memory taken since the third: %.1f MB\n",
           gpu_median(seconds + 1, (size_t)count - 1) * 1e3, ((double)settled - (double)now) / 1e6);
}

static void creation(gpu_t *gpu)
{
    double seconds[MOST] = {gpu->init_seconds};
    double end = ranks_seconds() + gpu->options->seconds;
    uint64_t hash = 0;
    size_t settled = 0, now = 0;
    int count = 1;
    use(gpu, gpu->comm, &hash);
    CHECK_NCCL(ncclCommDestroy(gpu->comm));
    gpu->comm = NULL;
    while (count < MOST && (count < 4 || go_on(gpu, end))) {
        ranks_barrier(gpu->ranks);
        double start = ranks_seconds();
        ncclComm_t comm = ranks_init(gpu->ranks);
        seconds[count++] = ranks_seconds() - start;
        use(gpu, comm, &hash);
        CHECK_NCCL(ncclCommDestroy(comm));
        now = gpu_free_memory(gpu);
        if (count == 3)
            settled = now;
    }
    if (gpu->rank == 0)
        report(seconds, count, settled, now);
    gpu_agree(gpu, hash);
    CHECK(now + SLACK >= settled);
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {{"creation", creation, GPU_PROCESSES, 60}};
    return gpu_main(argc, argv, cases, 1);
}
