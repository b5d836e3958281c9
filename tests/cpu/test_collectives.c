/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives other than all-reduce: every type and operator, every root, each
 * rank at its own addresses, in place, empty, beyond the scratch; and data moved
 * bit for bit.
 */
#include "cpu.h"

#include <string.h>

static const size_t counts[] = {1, 2, 3, 7, 15, 16, 17, 31, 33, 127, 1000};
enum { COUNTS = sizeof(counts) / sizeof(counts[0]) };

typedef void (*visit_t)(const coll_t *k, void *context);

/* Visit every root; the pairing of counts and roots changes from case to case. */
static void visit_roots(coll_t *k, visit_t visit, void *context)
{
    const bool rooted = coll_rooted(k);
    for (int root = 0; root < (rooted ? k->c.nranks : 1); root++) {
        k->root = (uint32_t)root;
        k->c.seed++;
        k->c.count = counts[k->c.seed % COUNTS];
        visit(k, context);
    }
}

static void visit_all(int nranks, visit_t visit, void *context)
{
    coll_t k = {.c = {.nranks = nranks, .seed = (uint64_t)nranks}};
    for (int collective = 1; collective < COLL_COUNT; collective++) {
        k.collective = (alg_collective_t)collective;
        for (int type = 0; type < REF_TYPES; type++) {
            k.c.type = (ncclDataType_t)type;
            k.c.kind = DATA_BITS;
            k.c.op = REF_SUM;
            visit_roots(&k, visit, context);
            for (int op = 0; op < REF_OPS && coll_reduces(&k); op++) {
                k.c.op = (ref_op_t)op;
                for (int kind = 0; kind < DATA_KINDS; kind++) {
                    k.c.kind = (data_kind_t)kind;
                    visit_roots(&k, visit, context);
                }
            }
            k.c.count = (size_t)scaled(4097);
            visit(&k, context);
            k.c.count = 0;
            visit(&k, context);
        }
    }
}

typedef struct rank_context {
    ncclComm_t comm;
    int rank;
    uint64_t hash;
} rank_context_t;

static void visit_rank(const coll_t *k, void *argument)
{
    rank_context_t *context = argument;
    call_shape_t shape = {0, 0, (k->c.seed & 2) != 0};
    call_run_coll(context->comm, context->rank, k, shape, &context->hash);
}

static void values_body(ranks_t *ranks)
{
    rank_context_t context = {.comm = ranks_init(ranks), .rank = ranks->rank};
    visit_all(ranks->nranks, visit_rank, &context);
    call_agree(ranks, context.hash);
    CHECK_NCCL(ncclCommDestroy(context.comm));
}

static void visit_solo(const coll_t *k, void *comms)
{
    call_shape_t shape = {0, 0, (k->c.seed & 2) != 0};
    call_run_solo_coll(comms, k, shape);
}

static void solo_body(ranks_t *ranks)
{
    ncclComm_t comms[REF_MAX_RANKS];
    const int *nranks = ranks->arg;
    CHECK_NCCL(ncclCommInitAll(comms, *nranks, NULL));
    visit_all(*nranks, visit_solo, comms);
    for (int r = 0; r < *nranks; r++)
        CHECK_NCCL(ncclCommDestroy(comms[r]));
}

static void processes(void **state)
{
    (void)state;
    for (int n = 1; n <= (SEES_THREADS ? 2 : REF_MAX_RANKS); n++)
        cpu_run(RANKS_PROCESSES, n, values_body, NULL);
}

static void threads(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 2, values_body, NULL);
    cpu_run(RANKS_THREADS, 5, values_body, NULL);
}

static void one_thread(void **state)
{
    static const int sizes[] = {1, 2, 5};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        cpu_run(RANKS_SOLO, 1, solo_body, &sizes[i]);
}

/* ---- Moved data bit for bit ---------------------------------------------------------------- */

enum { PATTERNS = 1 << 16 };

/* The 16 bits that `sender` has for `receiver` at element i: every pattern, in an order specific to the pair. */
static uint16_t pattern(int sender, int receiver, size_t i)
{
    return (uint16_t)(i * 40503u + (unsigned)sender * 977u + (unsigned)receiver * 131u);
}

/* Check that the receiver `whom` has the data that `sender` had for it. */
static void check_patterns(const uint16_t *got, size_t count, int sender, int whom)
{
    for (size_t i = 0; i < count; i++)
        CHECK(got[i] == pattern(sender, whom, i));
}

/* Data is moved bit for bit in each type: the same 128 KiB from every rank, with all NaNs of the 16-bit types, half of
 * them signalling; pairs of patterns are floats and doubles with every exponent. */
static void bits_of_type(ranks_t *ranks, ncclComm_t comm, ncclDataType_t type, uint16_t *send, uint16_t *recv)
{
    const int n = ranks->nranks, rank = ranks->rank, root = (int)type % n;
    const size_t count = PATTERNS * sizeof(*send) / ref_bytes(type);
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < PATTERNS; i++)
            send[(size_t)r * PATTERNS + i] = pattern(rank, r, i);

    CHECK_NCCL(ncclAlltoAll(send, recv, count, type, comm, NULL));
    for (int r = 0; r < n; r++)
        check_patterns(recv + (size_t)r * PATTERNS, PATTERNS, r, rank);
    CHECK_NCCL(ncclAllGather(send, recv, count, type, comm, NULL));
    for (int r = 0; r < n; r++)
        check_patterns(recv + (size_t)r * PATTERNS, PATTERNS, r, 0);
    memset(recv, 0, PATTERNS * sizeof(*recv));
    CHECK_NCCL(ncclBroadcast(send, recv, count, type, root, comm, NULL));
    check_patterns(recv, PATTERNS, root, 0);
    memset(recv, 0, (size_t)n * PATTERNS * sizeof(*recv));
    CHECK_NCCL(ncclGather(send, recv, count, type, root, comm, NULL));
    for (int r = 0; r < n && rank == root; r++)
        check_patterns(recv + (size_t)r * PATTERNS, PATTERNS, r, 0);
    CHECK_NCCL(ncclScatter(send, recv, count, type, root, comm, NULL));
    check_patterns(recv, PATTERNS, root, rank);
}

static void bits_body(ranks_t *ranks)
{
    const size_t bytes = (size_t)ranks->nranks * PATTERNS * sizeof(uint16_t);
    uint16_t *send = malloc(bytes), *recv = malloc(bytes);
    ncclComm_t comm = ranks_init(ranks);
    CHECK(send && recv);
    for (int type = 0; type < REF_TYPES; type++)
        bits_of_type(ranks, comm, (ncclDataType_t)type, send, recv);
    CHECK_NCCL(ncclCommDestroy(comm));
    free(send);
    free(recv);
}

static void bits(void **state)
{
    (void)state;
    for (int n = 1; n <= 3 && !SEES_THREADS; n++)
        cpu_run(RANKS_PROCESSES, n, bits_body, NULL);
    cpu_run(RANKS_THREADS, 4, bits_body, NULL);
}

/* ---- Addresses and sizes --------------------------------------------------------------------- */

static coll_t draw_coll(uint64_t *seed, int nranks)
{
    static const ncclDataType_t types[] = {ncclUint8, ncclBfloat16, ncclFloat32, ncclFloat64, ncclInt64};
    coll_t k = {.collective = (alg_collective_t)data_below(seed, COLL_COUNT),
                .root = (uint32_t)data_below(seed, (uint64_t)nranks)};
    k.c = (data_case_t){.type = types[data_below(seed, 5)], .op = REF_SUM, .kind = DATA_BITS, .nranks = nranks};
    k.c.seed = data_random(seed);
    return k;
}

/* Results are right if each rank independently draws its addresses and works in place or not: the algorithm must not
 * depend on these. */
static void offsets_body(ranks_t *ranks)
{
    static const size_t sizes[] = {1, 2, 9, 15, 16, 17, 33, 127, 260, 1031, 5003};
    ncclComm_t comm = ranks_init(ranks);
    uint64_t hash = 0, seed = 5, own = 77 + (uint64_t)ranks->rank;
    for (int i = 0; i < scaled(1500); i++) {
        coll_t k = draw_coll(&seed, ranks->nranks);
        const size_t width = ref_bytes(k.c.type), steps = 16 / width + 1;
        call_shape_t shape = {data_below(&own, steps) * width, data_below(&own, steps) * width,
                              data_below(&own, 3) == 0};
        k.c.count = sizes[data_below(&seed, sizeof(sizes) / sizeof(sizes[0]))];
        call_run_coll(comm, ranks->rank, &k, shape, &hash);
    }
    call_agree(ranks, hash);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void offsets(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 4, offsets_body, NULL);
    cpu_run(RANKS_PROCESSES, 3, offsets_body, NULL);
    cpu_run(RANKS_THREADS, 2, offsets_body, NULL);
}

/* Calls of more bytes than the scratch are right: each collective has an algorithm that serves them. */
static void large_body(ranks_t *ranks)
{
    static const size_t sizes[] = {100000, 262144, 700001};
    ncclComm_t comm = ranks_init(ranks);
    uint64_t hash = 0, seed = 3;
    for (int collective = 0; collective < COLL_COUNT; collective++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            coll_t k = draw_coll(&seed, ranks->nranks);
            k.collective = (alg_collective_t)collective;
            k.c.count = (size_t)scaled((int)sizes[i]);
            call_run_coll(comm, ranks->rank, &k, (call_shape_t){8, 8, i == 1}, &hash);
        }
    call_agree(ranks, hash);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void larger_than_scratch(void **state)
{
    static const char *const small[] = {"SHUNT_SCRATCH_BYTES", "16M", NULL};
    ranks_plan_t plan = {.nranks = 3, .body = large_body, .env = small};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
    plan.shape = RANKS_THREADS;
    plan.nranks = 2;
    assert_int_equal(ranks_run(&plan), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes), cmocka_unit_test(threads), cmocka_unit_test(one_thread),
        cmocka_unit_test(bits),      cmocka_unit_test(offsets), cmocka_unit_test(larger_than_scratch),
    };
    cpu_limit(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
