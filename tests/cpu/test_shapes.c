/* SPDX-License-Identifier: Apache-2.0 */
/* Counts at and around every limit, buffers at every address, in place, and messages beyond the scratch. */
#include "cpu.h"

#include <string.h>

enum { RUN_RANKS = 4 };

static const ncclDataType_t type_of_size[] = {ncclUint8, ncclBfloat16, ncclFloat32, ncclFloat64};
enum { SIZES = sizeof(type_of_size) / sizeof(type_of_size[0]) };

static void counts_body(ranks_t *ranks)
{
    static const size_t awkward[] = {1, 2, 3, 7, 15, 16, 17, 31, 33, 127, 1000, 4097, 65537};
    ncclComm_t comm = ranks_init(ranks);
    data_case_t c = {.op = REF_SUM, .kind = DATA_BITS, .nranks = ranks->nranks};
    call_shape_t shape = {0, 0, false};
    uint64_t hash = 0;
    int largest = scaled(1 << 10) > 500 ? 20 : 16;

    for (int t = 0; t < SIZES; t++) {
        c.type = type_of_size[t];
        for (size_t i = 0; i < sizeof(awkward) / sizeof(awkward[0]); i++) {
            c.count = awkward[i];
            c.seed++;
            call_run(comm, ranks->rank, &c, shape, &hash);
        }
        /* Slots, chunks and thresholds are powers of two in bytes; test each from both sides. */
        for (int power = 4; power <= largest; power++) {
            for (int around = -1; around <= 1; around++) {
                c.count = (size_t)((1ll << power) / (long long)ref_bytes(c.type) + around);
                c.seed++;
                if (c.count > 0)
                    call_run(comm, ranks->rank, &c, shape, &hash);
            }
        }
    }
    call_agree(ranks, hash);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void counts(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, counts_body, NULL);
    cpu_run(RANKS_PROCESSES, 3, counts_body, NULL);
    cpu_run(RANKS_THREADS, RUN_RANKS, counts_body, NULL);
    cpu_run(RANKS_PROCESSES, 8, counts_body, NULL);
}

/* Results are right if each rank draws its own addresses, on which the choice of algorithm must not depend. */
static void offsets_body(ranks_t *ranks)
{
    static const size_t sizes[] = {1, 2, 9, 15, 16, 17, 33, 127, 260, 1031};
    ncclComm_t comm = ranks_init(ranks);
    data_case_t c = {.op = REF_SUM, .kind = DATA_BITS, .nranks = ranks->nranks};
    uint64_t hash = 0, own = 77 + (uint64_t)ranks->rank;

    for (int t = 0; t < SIZES; t++) {
        size_t bytes, steps;
        c.type = type_of_size[t];
        bytes = ref_bytes(c.type);
        steps = 16 / bytes + 1;
        for (size_t i = 0; i < steps * steps; i++) {
            size_t input = i / steps, output = i % steps;
            call_shape_t shape = {input * bytes, output * bytes, data_below(&own, 4) == 0};
            if (i & 1) { /* every other time only this rank is elsewhere */
                shape.input_offset = data_below(&own, steps) * bytes;
                shape.output_offset = data_below(&own, steps) * bytes;
            }
            c.count = sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];
            c.seed++;
            call_run(comm, ranks->rank, &c, shape, &hash);
        }
    }
    call_agree(ranks, hash);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void offsets(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, RUN_RANKS, offsets_body, NULL);
    cpu_run(RANKS_THREADS, 2, offsets_body, NULL);
}

/* A large call, which the CPU device cannot forward, either works or fails with the same clear error on every rank. */
static void large_body(ranks_t *ranks)
{
    static const size_t sizes[] = {100000, 262144, 300001, 1048577, 2500000};
    ncclComm_t comm = ranks_init(ranks);
    call_shape_t shape = {4, 8, false};
    uint64_t hash = 0;
    call_t call;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, i, sizes[i], ranks->nranks};
        ncclResult_t result;
        if (scaled(10) < 10 && c.count > 300001)
            continue;
        call_prepare(&call, comm, ranks->rank, &c, shape);
        result = call_issue(&call);
        call_agree(ranks, (uint64_t)result);
        if (result != ncclSuccess) {
            CHECK(result == ncclInvalidUsage || result == ncclInvalidArgument);
            CHECK(strlen(ncclGetLastError(comm)) > 0);
            call_cancelled(&call);
            /* and the communicator still works */
            c.count = 17;
            call_run(comm, ranks->rank, &c, shape, &hash);
            continue;
        }
        call_finish(&call, ranks->rank, ranks->nranks, &hash);
    }
    call_agree(ranks, hash);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void larger_than_scratch(void **state)
{
    static const char *const small[] = {"SHUNT_SCRATCH_BYTES", "1048576", NULL};
    ranks_plan_t plan = {.nranks = RUN_RANKS, .body = large_body, .env = small};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
    plan.shape = RANKS_THREADS;
    plan.nranks = 2;
    assert_int_equal(ranks_run(&plan), 0);
    plan.env = NULL; /* the default scratch */
    assert_int_equal(ranks_run(&plan), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),
        cmocka_unit_test(offsets),
        cmocka_unit_test(larger_than_scratch),
    };
    cpu_limit(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
