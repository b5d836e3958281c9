/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arming_test.c - the memory of a scratch is set on a fake GPU that waiting kernels fill: long memsets and copies on
 * the device never begin, copies from the host do.
 */
#include <cuda_runtime_api.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "algorithms/scratch_device.h"

enum { SHORT_MEMSET = 4096, BYTES = 80 << 20, POISON = 0x5a };

/* ---- CUDA ------------------------------------------------------------------------------ */

static bool stuck, refuses;
static int streams, registrations;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    assert_int_equal(flags, cudaStreamNonBlocking);
    *stream = (cudaStream_t)&streams;
    streams++;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    assert_ptr_equal(stream, &streams);
    streams--;
    return cudaSuccess;
}

/* A real one would wait for ever. */
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return cudaStreamQuery(stream);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    assert_ptr_equal(stream, &streams);
    return stuck ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    stuck = stuck || bytes > SHORT_MEMSET;
    if (!stuck)
        memset(at, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)stream;
    stuck = stuck || kind != cudaMemcpyHostToDevice;
    if (!stuck)
        memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    (void)pointer, (void)bytes;
    assert_int_equal(flags, cudaHostRegisterPortable);
    registrations++;
    return refuses ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    *pointer = malloc(bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *pointer)
{
    free(pointer);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
    return cudaSuccess;
}

bool alg_probe_dependent(void)
{
    return true;
}

int alg_probe_launch(const alg_probe_t *probe, void *stream)
{
    (void)probe, (void)stream;
    return 0;
}

int alg_control_create_cuda(int ordinal, alg_control_t **host, alg_control_t **device)
{
    (void)ordinal, (void)host, (void)device;
    return -1;
}

void alg_control_destroy_cuda(int ordinal, alg_control_t *host)
{
    (void)ordinal, (void)host;
}

/* ---- Tests ------------------------------------------------------------------------------ */

static bool all_are(const uint8_t *at, size_t bytes, uint8_t value)
{
    return bytes == 0 || (at[0] == value && memcmp(at, at + 1, bytes - 1) == 0);
}

static void check_piece(const alg_map_t *map, uint32_t piece, const uint8_t *memory)
{
    alg_span_t span[2];
    const alg_span_t whole = map->piece[piece];
    const uint32_t spans = alg_map_armed(map, piece, span);
    size_t at = whole.offset;
    for (uint32_t i = 0; i < spans; i++) {
        assert_true(span[i].offset >= at && span[i].offset + span[i].bytes <= whole.offset + whole.bytes);
        assert_true(all_are(memory + at, span[i].offset - at, 0));
        assert_true(all_are(memory + span[i].offset, span[i].bytes, 0xff));
        at = span[i].offset + span[i].bytes;
    }
    assert_true(all_are(memory + at, whole.offset + whole.bytes - at, 0));
}

static void arm_each(const alg_map_t *map, uint8_t *memory)
{
    alg_scratch_t scratch = {.ops = &alg_scratch_cuda, .map = *map, .nranks = 2, .team.scratch = {memory}};
    for (uint32_t piece = 0; piece < map->pieces; piece++) {
        void *arming = NULL;
        if (map->piece[piece].bytes == 0)
            continue;
        memset(memory, POISON, map->total_bytes);
        assert_int_equal(alg_scratch_cuda.arm_piece(&scratch, piece, &arming), 0);
        assert_non_null(arming);
        assert_int_equal(alg_scratch_cuda.armed(&scratch, &arming, false), 1);
        assert_null(arming);
        check_piece(map, piece, memory);
        assert_true(all_are(memory, map->piece[piece].offset, POISON));
        const size_t end = map->piece[piece].offset + map->piece[piece].bytes;
        assert_true(all_are(memory + end, map->total_bytes - end, POISON));
    }
    assert_false(stuck);
    assert_int_equal(streams, 0);
}

static void a_full_gpu_keeps_no_piece_waiting(void **state)
{
    (void)state;
    alg_map_t whole;
    assert_true(alg_map_init(&whole, BYTES));
    uint8_t *memory = malloc((size_t)2 * BYTES);
    assert_non_null(memory);
    arm_each(&whole, memory);
    for (uint32_t nranks = 2; nranks <= 8; nranks += 3) {
        for (int rings_first = 0; rings_first < 2; rings_first++) {
            alg_map_t map = whole;
            alg_map_cut(&map, nranks, rings_first != 0);
            assert_true(map.total_bytes <= (size_t)2 * BYTES);
            arm_each(&map, memory);
        }
    }
    assert_int_equal(registrations, 1); /* of the process, though it was refused */
    free(memory);
}

/* Where ranks meet in pinned memory, the counters of a GPU. */
static void a_full_gpu_keeps_no_counters_waiting(void **state)
{
    (void)state;
    alg_map_t map;
    assert_true(alg_map_init(&map, BYTES));
    map.memory = ALG_MEMORY_PINNED;
    uint8_t *memory = malloc(map.total_bytes), *own = malloc(ALG_OWN_BYTES);
    assert_non_null(memory);
    assert_non_null(own);
    memset(own, POISON, ALG_OWN_BYTES);
    alg_scratch_t scratch = {.ops = &alg_scratch_cuda, .map = map, .nranks = 2, .team.scratch = {memory}, .own = own};
    assert_int_equal(alg_scratch_cuda.arm(&scratch), 0);
    assert_false(stuck);
    assert_true(all_are(own, ALG_OWN_BYTES, 0));
    free(own);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_full_gpu_keeps_no_piece_waiting),
                                       cmocka_unit_test(a_full_gpu_keeps_no_counters_waiting)};
    refuses = true;
    return cmocka_run_group_tests_name("arming", tests, NULL, NULL);
}
