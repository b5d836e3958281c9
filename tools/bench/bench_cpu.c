/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_cpu.c - the CPU device for a rank: plain memory, calls that return when complete, the monotonic clock.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/base/clock.h"
#include "tools/bench/bench.h"

typedef struct cpu_state {
    double mark[2];
} cpu_state_t;

static bool cpu_open(bench_rank_t *rank)
{
    rank->device_state = calloc(1, sizeof(cpu_state_t));
    return rank->device_state != NULL || bench_fail(rank, "out of memory");
}

static void cpu_close(bench_rank_t *rank)
{
    free(rank->device_state);
    rank->device_state = NULL;
}

static bool cpu_allocate(bench_rank_t *rank, size_t bytes, uint8_t **memory)
{
    *memory = malloc(bytes);
    return *memory != NULL || bench_fail(rank, "no memory for a buffer of %zu bytes", bytes);
}

static void cpu_release(bench_rank_t *rank, uint8_t *memory)
{
    (void)rank;
    free(memory);
}

static bool cpu_upload(bench_rank_t *rank, uint8_t *to, const void *from, size_t bytes)
{
    (void)rank;
    memcpy(to, from, bytes);
    return true;
}

static bool cpu_download(bench_rank_t *rank, void *to, const uint8_t *from, size_t bytes)
{
    (void)rank;
    memcpy(to, from, bytes);
    return true;
}

static bool cpu_fill(bench_rank_t *rank, uint8_t *to, int byte, size_t bytes)
{
    (void)rank;
    memset(to, byte, bytes);
    return true;
}

static bool cpu_wait(bench_rank_t *rank)
{
    (void)rank;
    return true;
}

static bool cpu_mark(bench_rank_t *rank, int which)
{
    cpu_state_t *state = rank->device_state;
    state->mark[which] = tool_now();
    return true;
}

static bool cpu_elapsed(bench_rank_t *rank, double *seconds)
{
    const cpu_state_t *state = rank->device_state;
    *seconds = state->mark[1] - state->mark[0];
    return true;
}

const bench_device_t bench_device_cpu = {
    .open = cpu_open,
    .close = cpu_close,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .upload = cpu_upload,
    .download = cpu_download,
    .fill = cpu_fill,
    .wait = cpu_wait,
    .mark = cpu_mark,
    .elapsed = cpu_elapsed,
};
