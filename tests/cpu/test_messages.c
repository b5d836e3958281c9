/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives: sizes, order, groups of all shapes, to oneself, beside collectives; and random programs. */
#include "cpu.h"

#include <string.h>

#include "message.h"
#include "mix.h"

static message_t make(int from, int to, size_t count, ncclDataType_t type, uint64_t seed)
{
    return (message_t){.from = from, .to = to, .count = count, .type = type, .seed = seed};
}

/* Run this rank's end of a message, if it has one. */
static void run_end(const message_t *m, int rank, ncclComm_t comm, size_t offset)
{
    if (m->from == rank || m->to == rank)
        message_run(m, m->from == rank, comm, offset);
}

/* ---- Sizes, types, addresses ------------------------------------------------------------------- */

/* Single messages of all sizes arrive between all ranks. The longest are skipped with the thread sanitizer: they only
 * fill the rings more often. */
static void sizes_body(ranks_t *ranks)
{
    static const size_t sizes[] = {0,   1,   2,    3,    7,    15,    16,    17,     31,     33,      127,     128,
                                   500, 513, 1023, 4096, 4097, 16384, 65537, 262143, 262144, 1000003, 3 << 20, 5000011};
    ncclComm_t comm = ranks_init(ranks);
    const int n = ranks->nranks;
    uint64_t own = 5 + (uint64_t)ranks->rank, seed = 1;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int from = 0; from < n && sizes[i] <= (size_t)scaled(20 << 20); from++)
            for (int step = 1; step < n; step++) {
                const ncclDataType_t type = (ncclDataType_t)(seed % REF_TYPES);
                const size_t width = ref_bytes(type);
                message_t m = make(from, (from + step) % n, sizes[i] / width, type, seed++);
                m.as_bytes = seed % 3 == 0;
                run_end(&m, ranks->rank, comm, data_below(&own, 16 / width + 1) * width);
            }
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* Data of only one-bits, which equals armed memory, arrives. */
static void ones_body(ranks_t *ranks)
{
    enum { MOST = 300000 };
    ncclComm_t comm = ranks_init(ranks);
    uint8_t *data = malloc(MOST + 64);
    CHECK(data);
    for (size_t count = 1; count <= MOST; count = count * 5 / 2 + 1)
        for (int offset = 0; offset < 3; offset++) {
            memset(data, ranks->rank == 0 ? 0xff : 0, MOST + 64);
            if (ranks->rank == 0)
                CHECK_NCCL(ncclSend(data + offset, count, ncclUint8, 1, comm, NULL));
            else
                CHECK_NCCL(ncclRecv(data + 7 * offset, count, ncclUint8, 0, comm, NULL));
            for (size_t i = 0; i < count; i++)
                CHECK(data[i + (ranks->rank == 0 ? 1 : 7) * (size_t)offset] == 0xff);
        }
    CHECK_NCCL(ncclCommDestroy(comm));
    free(data);
}

static void sizes(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, sizes_body, NULL);
    cpu_run(RANKS_PROCESSES, 3, sizes_body, NULL);
    cpu_run(RANKS_THREADS, 2, sizes_body, NULL);
    cpu_run(RANKS_PROCESSES, 2, ones_body, NULL);
}

/* ---- One way --------------------------------------------------------------------------------- */

/* A short send ends before its receive is made. */
static void early_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    for (uint64_t i = 0; i < 50; i++) {
        const message_t m = make((int)(i % 2), (int)(1 - i % 2), 1 + i * 20, ncclUint8, i);
        if (m.from == ranks->rank)
            message_run(&m, true, comm, 0);
        ranks_barrier(ranks);
        if (m.to == ranks->rank)
            message_run(&m, false, comm, 0);
    }
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* Thousands of messages of one pair, of all lengths, arrive in order with different groups at each end. */
static void queued_body(ranks_t *ranks)
{
    enum { MESSAGES = 3000, MOST_GROUP = 700 };
    const int *group = ranks->arg; /* of each rank; 1: none */
    static _Thread_local message_end_t ends[MOST_GROUP];
    ncclComm_t comm = ranks_init(ranks);
    const int all = scaled(MESSAGES), mine = group[ranks->rank];
    for (int first = 0; first < all; first += mine) {
        const int last = first + mine < all ? first + mine : all;
        for (int i = first; i < last; i++) {
            const message_t m = make(0, 1, (size_t)(i * 7 % 311), ncclFloat16, (uint64_t)i);
            message_prepare(&ends[i - first], &m, ranks->rank == 0, comm, 0);
        }
        if (mine > 1)
            CHECK_NCCL(ncclGroupStart());
        for (int i = first; i < last; i++)
            CHECK_NCCL(message_issue(&ends[i - first]));
        if (mine > 1)
            CHECK_NCCL(ncclGroupEnd());
        for (int i = first; i < last; i++)
            message_finish(&ends[i - first]);
    }
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* Unreceived messages end with their communicator: the next one, which may get its memory, does not receive them. */
static void left_behind_body(ranks_t *ranks)
{
    for (uint64_t round = 0; round < 4; round++) {
        ncclComm_t comm = ranks_init(ranks);
        const message_t there = make(0, 1, 100, ncclUint8, round), back = make(1, 0, 70000, ncclUint8, round + 9);
        run_end(&there, ranks->rank, comm, 0);
        run_end(&back, ranks->rank, comm, 0);
        for (uint64_t i = 0; i < round && ranks->rank == 0; i++)
            message_run(&there, true, comm, 0);
        ranks_barrier(ranks);
        CHECK_NCCL(ncclCommDestroy(comm));
    }
}

static void one_way(void **state)
{
    static const int groups[][2] = {{1, 1}, {700, 1}, {1, 700}, {700, 700}, {3, 100}};
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, early_body, NULL);
    cpu_run(RANKS_THREADS, 2, early_body, NULL);
    cpu_run(RANKS_PROCESSES, 2, left_behind_body, NULL);
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
        cpu_run(i % 2 ? RANKS_THREADS : RANKS_PROCESSES, 2, queued_body, groups[i]);
}

/* ---- Exchanges ------------------------------------------------------------------------------- */

enum { MOST_ENDS = 2 * REF_MAX_RANKS };

static void run_group(message_end_t *ends, int count)
{
    CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < count; i++)
        CHECK_NCCL(message_issue(&ends[i]));
    CHECK_NCCL(ncclGroupEnd());
    for (int i = 0; i < count; i++)
        message_finish(&ends[i]);
}

/* Each rank sends to the next one, as in nccl-tests. */
static void ring(ncclComm_t comm, int rank, int n, size_t count)
{
    message_end_t ends[2];
    const message_t out = make(rank, (rank + 1) % n, count, ncclFloat32, (uint64_t)rank),
                    in = make((rank + n - 1) % n, rank, count, ncclFloat32, (uint64_t)((rank + n - 1) % n));
    message_prepare(&ends[0], &out, true, comm, 4);
    message_prepare(&ends[1], &in, false, comm, 8);
    run_group(ends, 2);
}

/* Unequal parts, some empty, as in PyTorch's all_to_all_single with splits; also to oneself. */
static size_t part_of(int from, int to, uint64_t round)
{
    const uint64_t draw = (uint64_t)(from * 31 + to * 17) + round * 13;
    return draw % 4 == 0 ? 0 : draw % 7 == 0 ? 60000 + draw : draw * 41 % 3000;
}

static void all_pairs(ncclComm_t comm, int rank, int n, uint64_t round)
{
    message_end_t ends[MOST_ENDS];
    int count = 0;
    for (int i = 0; i < n; i++) {
        const int peer = (i + rank * (int)round) % n; /* in another order on each rank */
        const message_t out = make(rank, peer, part_of(rank, peer, round), ncclBfloat16, round + (uint64_t)rank),
                        in = make(peer, rank, part_of(peer, rank, round), ncclBfloat16, round + (uint64_t)peer);
        message_prepare(&ends[count++], &out, true, comm, 2 * round % 16);
        message_prepare(&ends[count++], &in, false, comm, 2 * (round + 3) % 16);
    }
    run_group(ends, count);
}

static void exchanges_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    for (size_t count = 1; count < (size_t)scaled(1000000); count *= 6)
        ring(comm, ranks->rank, ranks->nranks, count);
    for (uint64_t round = 0; round < 2u + (uint64_t)scaled(18); round++)
        all_pairs(comm, ranks->rank, ranks->nranks, round);
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* Calls that rank 0 groups complete if the others make them one by one, in either order. */
static void opposite_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    for (int round = 0; round < 12; round++) {
        const size_t large = 1500000, small = 10;
        const message_t there = make(0, 1, round & 1 ? large : small, ncclUint8, 1),
                        back = make(1, 0, round & 2 ? large : small, ncclUint8, 2);
        if (ranks->rank == 1) {
            run_end(round & 4 ? &there : &back, 1, comm, 0);
            run_end(round & 4 ? &back : &there, 1, comm, 1);
            continue;
        }
        message_end_t ends[2];
        message_prepare(&ends[0], &there, true, comm, 3);
        message_prepare(&ends[1], &back, false, comm, 0);
        run_group(ends, 2);
    }
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void exchanges(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 1, exchanges_body, NULL);
    cpu_run(RANKS_PROCESSES, 2, exchanges_body, NULL);
    cpu_run(RANKS_PROCESSES, 5, exchanges_body, NULL);
    cpu_run(RANKS_THREADS, 3, exchanges_body, NULL);
    cpu_run(RANKS_PROCESSES, 8, exchanges_body, NULL);
    cpu_run(RANKS_PROCESSES, 2, opposite_body, NULL);
    cpu_run(RANKS_THREADS, 2, opposite_body, NULL);
}

/* ---- Beside collectives, and on several communicators --------------------------------------------- */

static void sum(ncclComm_t comm, int nranks)
{
    const int32_t in = 3;
    int32_t out = 0;
    CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comm, NULL));
    CHECK(out == 3 * nranks);
}

/* Messages beside a collective complete: rank 0 groups them, the others receive before the collective and send after
 * it, or the reverse. */
static void beside_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    const int n = ranks->nranks;
    const int32_t in = 3;
    int32_t out[2] = {0, 0};
    for (int round = 0; round < 4; round++) {
        const size_t count = round & 2 ? 700000 : 20;
        if (ranks->rank != 0) {
            const message_t there = make(0, ranks->rank, count, ncclUint8, 1),
                            back = make(ranks->rank, 0, count, ncclUint8, 2);
            run_end(round & 1 ? &there : &back, ranks->rank, comm, 0);
            sum(comm, n);
            run_end(round & 1 ? &back : &there, ranks->rank, comm, 0);
            sum(comm, n);
            continue;
        }
        message_end_t ends[MOST_ENDS];
        int ended = 0;
        CHECK_NCCL(ncclGroupStart());
        CHECK_NCCL(ncclAllReduce(&in, &out[0], 1, ncclInt32, ncclSum, comm, NULL));
        for (int peer = 1; peer < n; peer++)
            for (int sends = 0; sends < 2; sends++) {
                const message_t m = sends ? make(0, peer, count, ncclUint8, 1) : make(peer, 0, count, ncclUint8, 2);
                message_prepare(&ends[ended], &m, sends, comm, 0);
                CHECK_NCCL(message_issue(&ends[ended++]));
            }
        CHECK_NCCL(ncclAllReduce(&in, &out[1], 1, ncclInt32, ncclSum, comm, NULL));
        CHECK_NCCL(ncclGroupEnd());
        CHECK(out[0] == 3 * n && out[1] == 3 * n);
        while (ended-- > 0)
            message_finish(&ends[ended]);
    }
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* The same messages on two communicators complete if rank 0 groups them. */
static void two_communicators_body(ranks_t *ranks)
{
    ncclComm_t comm[2] = {ranks_init(ranks), ranks_init(ranks)};
    for (int round = 0; round < 8; round++) {
        const message_t m[2] = {make(0, 1, 400000, ncclUint8, 1), make(1, 0, 300001, ncclUint8, 2)};
        if (ranks->rank == 1) {
            for (int i = 0; i < 2; i++)
                run_end(&m[(i + round) % 2], 1, comm[(i + round) % 2], 0);
            continue;
        }
        message_end_t ends[2];
        for (int i = 0; i < 2; i++)
            message_prepare(&ends[i], &m[i], i == 0, comm[i], 0);
        run_group(ends, 2);
    }
    for (int i = 0; i < 2; i++)
        CHECK_NCCL(ncclCommDestroy(comm[i]));
}

static void beside(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, beside_body, NULL);
    cpu_run(RANKS_PROCESSES, 4, beside_body, NULL);
    cpu_run(RANKS_THREADS, 3, beside_body, NULL);
    cpu_run(RANKS_PROCESSES, 2, two_communicators_body, NULL);
    cpu_run(RANKS_THREADS, 2, two_communicators_body, NULL);
}

/* ---- To oneself ------------------------------------------------------------------------------------ */

static void oneself_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    const int me = ranks->rank;
    uint8_t in[64], out[64];
    memset(in, 7, sizeof(in));
    for (size_t count = 1; count < (size_t)scaled(2000000); count *= 5) {
        message_end_t ends[4];
        for (uint64_t i = 0; i < 2; i++) {
            const message_t m = make(me, me, count + i, ncclUint8, i);
            message_prepare(&ends[i], &m, false, comm, i);
            message_prepare(&ends[i + 2], &m, true, comm, 2 * i);
        }
        run_group(ends, 4);
    }
    /* Without its other end, or with another length: refused, and nothing is broken. */
    CHECK_RESULT(ncclSend(in, 1, ncclUint8, me, comm, NULL), ncclInvalidUsage);
    CHECK_RESULT(ncclRecv(out, 1, ncclUint8, me, comm, NULL), ncclInvalidUsage);
    for (int wrong = 0; wrong < 4; wrong++) {
        memset(out, 9, sizeof(out));
        CHECK_NCCL(ncclGroupStart());
        if (wrong != 0)
            CHECK_NCCL(ncclSend(in, 8, ncclUint8, me, comm, NULL));
        if (wrong != 1)
            CHECK_NCCL(ncclRecv(out, wrong == 2 ? 9 : 8, ncclUint8, me, comm, NULL));
        if (wrong == 3)
            CHECK_NCCL(ncclSend(in, 8, ncclUint8, me, comm, NULL));
        CHECK_RESULT(ncclGroupEnd(), ncclInvalidUsage);
        CHECK(strlen(ncclGetLastError(comm)) > 0);
        for (size_t i = 0; i < sizeof(out); i++)
            CHECK(out[i] == 9);
    }
    sum(comm, ranks->nranks);
    ring(comm, me, ranks->nranks, 100);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void oneself(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 1, oneself_body, NULL);
    cpu_run(RANKS_PROCESSES, 3, oneself_body, NULL);
}

/* ---- Random programs ---------------------------------------------------------------------------------- */

/* As the command says: -t SECONDS in all instead of one program in each shape, -s SEED. */
enum { RUNS = 8 };
static int lasting_seconds;
static uint64_t lasting_seed;

static void mix_body(ranks_t *ranks)
{
    ncclComm_t comms[MIX_COMMS * REF_MAX_RANKS] = {0};
    mix_t mix = *(const mix_t *)ranks->arg;
    for (int i = 0; i < mix.comms; i++)
        comms[i * ranks->nranks + ranks->rank] = ranks_init(ranks);
    mix.events = scaled(mix.events);
    mix_run_for(lasting_seconds / RUNS, &mix, NULL, ranks, comms, ranks->nranks);
    for (int i = 0; i < mix.comms; i++)
        CHECK_NCCL(ncclCommDestroy(comms[i * ranks->nranks + ranks->rank]));
}

static void solo_body(ranks_t *ranks)
{
    enum { N = 3 };
    ncclComm_t comms[MIX_COMMS * N];
    mix_t mix = *(const mix_t *)ranks->arg;
    for (int i = 0; i < mix.comms; i++)
        CHECK_NCCL(ncclCommInitAll(comms + i * N, N, NULL));
    mix.events = scaled(mix.events);
    mix_run_for(lasting_seconds / RUNS, &mix, NULL, ranks, comms, N);
    for (int i = 0; i < mix.comms * N; i++)
        CHECK_NCCL(ncclCommDestroy(comms[i]));
}

static void programs(void **state)
{
    static const mix_t
        alone = {.events = 1500, .comms = 1, .largest = 600000, .group = 1, .seed = 1},
        pairs = {.events = 3000, .comms = 1, .largest = 600000, .group = 12, .seed = 2},
        mixed = {.events = 2000, .comms = 2, .collectives = 4, .largest = 300000, .group = 40, .seed = 3},
        stalled = {
            .events = 400, .comms = 2, .collectives = 4, .largest = 300000, .group = 16, .stall_one_in = 4, .seed = 4};
    static const struct {
        ranks_shape_t shape;
        int nranks;
        ranks_body_t body;
        const mix_t *mix;
    } runs[RUNS] = {{RANKS_PROCESSES, 2, mix_body, &alone},   {RANKS_PROCESSES, 2, mix_body, &pairs},
                    {RANKS_PROCESSES, 4, mix_body, &mixed},   {RANKS_THREADS, 3, mix_body, &mixed},
                    {RANKS_PROCESSES, 3, mix_body, &stalled}, {RANKS_PROCESSES, 8, mix_body, &stalled},
                    {RANKS_SOLO, 1, solo_body, &pairs},       {RANKS_SOLO, 1, solo_body, &mixed}};
    (void)state;
    for (int i = 0; i < RUNS; i++) {
        mix_t mix = *runs[i].mix;
        mix.seed += lasting_seed;
        const ranks_plan_t plan = {.shape = runs[i].shape,
                                   .nranks = runs[i].nranks,
                                   .seconds = 300 + lasting_seconds,
                                   .body = runs[i].body,
                                   .arg = &mix};
        assert_int_equal(ranks_run(&plan), 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),  cmocka_unit_test(one_way), cmocka_unit_test(exchanges),
        cmocka_unit_test(beside), cmocka_unit_test(oneself), cmocka_unit_test(programs),
    };
    for (int option; (option = getopt(argc, argv, "t:s:")) != -1;) {
        if (option != 't' && option != 's')
            return 2;
        if (option == 't')
            lasting_seconds = atoi(optarg);
        else
            lasting_seed = strtoull(optarg, NULL, 0);
    }
    cpu_limit(120 + (unsigned)lasting_seconds);
    if (lasting_seconds > 0)
        cmocka_set_test_filter("programs");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
