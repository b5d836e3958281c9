/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_test.c - a rank whose peer sends wrong data.
 *
 * Rank 0 is the library. Rank 1 is this test: it knows the steps of a set-up, and in each round posts copies of rank
 * 0's records, cut, torn or made up; or offers wrong memory; or decides the verdict too early; or overwrites the whole
 * segment while rank 0 reads it. Rank 0 must fail in each case, except for a verdict after its proof, which it must
 * accept; with an overwritten segment either is right. It can release what it has, and does not crash. (Also runs under
 * the address sanitizer.)
 */
#define _GNU_SOURCE
#include "../cpu/cpu.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "shim/setup/setup.h"
#include "transport/segment.h"

enum { ROUNDS = 70, SEGMENT_BYTES = sizeof(net_segment_t) };

/* As shim/setup/attach.c makes it. */
static net_key_t key_of(const ncclUniqueId *id)
{
    struct {
        net_key_t ids;
        int64_t nranks;
    } whole = {net_key_hash(id, sizeof(*id)), 2};
    return net_key_hash(&whole, sizeof(whole));
}

typedef enum lie {
    LIE_COPY,     /* rank 0's own records, unchanged */
    LIE_FLIP,     /* ... with some bits turned */
    LIE_RANDOM,   /* noise of the right size */
    LIE_SIZE,     /* of any size */
    LIE_OFFER,    /* right except for the memory of the first try: too small */
    LIE_VERDICT,  /* attached, before the proof */
    LIE_SCRIBBLE, /* the whole segment */
    LIES
} lie_t;

static void scribble(const net_key_t *key, uint64_t *dice)
{
    char name[SEGMENT_NAME_BYTES];
    const net_key_t shown = net_key_name(key);
    snprintf(name, sizeof(name), "/shunt-%lu-%016lx%016lx", (unsigned long)geteuid(), (unsigned long)shown.word[0],
             (unsigned long)shown.word[1]);
    int fd = shm_open(name, O_RDWR, 0);
    if (fd < 0)
        return; /* unlinked already */
    uint8_t *bytes = mmap(NULL, SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    CHECK(bytes != MAP_FAILED);
    for (int i = 0; i < 20000; i++)
        __atomic_store_n(&bytes[16 + data_below(dice, SEGMENT_BYTES - 16)], (uint8_t)data_random(dice),
                         __ATOMIC_RELAXED);
    munmap(bytes, SEGMENT_BYTES);
}

/* Change a copy of rank 0's record; returns its size. */
static size_t distort(lie_t lie, uint32_t stage, uint8_t record[NET_RECORD_BYTES], size_t size, uint64_t *dice)
{
    if (stage == 0 && lie != LIE_RANDOM && lie != LIE_SIZE)
        ((shim_identity_t *)(void *)record)->process = net_process_self();
    if (lie == LIE_FLIP)
        for (int i = 0; i < 4 && size > 0; i++)
            record[data_below(dice, size)] ^= (uint8_t)(1u << data_below(dice, 8));
    if (lie == LIE_SIZE)
        size = data_below(dice, net_record_bytes(stage) + 1);
    for (size_t i = 0; (lie == LIE_RANDOM || lie == LIE_SIZE) && i < size; i++)
        record[i] = (uint8_t)data_random(dice);
    return size;
}

static void offer_little(uint8_t record[NET_RECORD_BYTES], net_memory_t **memory)
{
    uint8_t offer[NET_OFFER_BYTES];
    CHECK(net_memory_create(NET_MEMORY_SHARED, 0, 4096, memory, offer) == 0);
    memcpy(record + sizeof(int32_t), offer, sizeof(offer));
}

/* In CPU mode: the second try is made when the first fails. */
static const uint32_t stages[] = {STAGE_IDENTITY,
                                  STAGE_AGREE,
                                  STAGE_FIRST_TRY + TRY_OFFER,
                                  STAGE_FIRST_TRY + TRY_OPENED,
                                  STAGE_FIRST_TRY + TRY_PROOF,
                                  STAGE_FIRST_TRY + TRY_STAGES + TRY_OFFER,
                                  STAGE_FIRST_TRY + TRY_STAGES + TRY_SENT,
                                  STAGE_FIRST_TRY + TRY_STAGES + TRY_OPENED,
                                  STAGE_FIRST_TRY + TRY_STAGES + TRY_PROOF};
enum { STAGES = sizeof stages / sizeof stages[0], OFFER = 2, FIRST_PROOF = 4, LAST_PROOF = STAGES - 1 };

/* Wait for rank 0's record of a stage from `from` on; STAGES if none comes. */
static uint32_t read_first(net_rendezvous_t *rendezvous, uint32_t from, uint8_t record[NET_RECORD_BYTES], size_t *size)
{
    for (double end = ranks_seconds() + 10; ranks_seconds() < end; usleep(50)) {
        if (net_verdict(rendezvous) != NET_PENDING)
            return STAGES;
        for (uint32_t i = from; i < STAGES; i++)
            if (net_read(rendezvous, stages[i], 0, record, NET_RECORD_BYTES, size) == 0)
                return i;
    }
    return STAGES;
}

typedef enum told {
    TOLD_ANY = 1, /* rank 0 may fail or not */
    TOLD_WRONG,
    TOLD_ATTACHED /* when it had shown its proof */
} told_t;

static unsigned told_count[LIES], attached_count;

static told_t lie_to(const ncclUniqueId *id, uint64_t seed)
{
    uint64_t dice = seed;
    const lie_t lie = (lie_t)(seed % LIES);
    const uint32_t when = lie == LIE_OFFER ? OFFER : LAST_PROOF - (uint32_t)(seed / LIES % STAGES);
    const bool little = lie == LIE_OFFER || when > FIRST_PROOF; /* so that there is a second try */
    net_key_t key = key_of(id);
    net_rendezvous_t *rendezvous;
    net_memory_t *memory = NULL;
    CHECK(net_join(&key, &rendezvous) == 0);
    CHECK(net_set_rank(rendezvous, 1, 2) == 0);
    for (uint32_t i = 0; i < STAGES; i++) {
        uint8_t record[NET_RECORD_BYTES] = {0};
        size_t size = 0;
        i = read_first(rendezvous, i, record, &size);
        if (i == STAGES)
            break;
        const uint32_t stage = stages[i];
        told_count[lie] += i == when;
        if (little && i == OFFER)
            offer_little(record, &memory);
        if (lie == LIE_VERDICT && i == when)
            net_decide(rendezvous, NET_ATTACHED, "");
        if (lie == LIE_SCRIBBLE && i == when)
            scribble(&key, &dice);
        size = distort(i == when ? lie : LIE_COPY, stage, record, size, &dice);
        net_post(rendezvous, stage, record, size);
    }
    usleep(20000);
    const bool attached = net_verdict(rendezvous) == NET_ATTACHED, proof = when == FIRST_PROOF || when == LAST_PROOF;
    CHECK(!attached || lie == LIE_VERDICT || lie == LIE_SCRIBBLE);
    net_leave(rendezvous);
    net_memory_destroy(memory);
    const told_t told = lie == LIE_SCRIBBLE ? TOLD_ANY : attached && proof ? TOLD_ATTACHED : TOLD_WRONG;
    attached_count += told == TOLD_ATTACHED;
    return told;
}

/* Other rounds than in CI: hostile_peer SEED. */
static uint64_t first_seed = 1;

static void body(ranks_t *ranks)
{
    for (uint64_t round = 0; round < (uint64_t)scaled(ROUNDS); round++) {
        ncclUniqueId id = ranks_id(ranks);
        ncclComm_t comm = NULL;
        ncclResult_t result = ncclSuccess;
        if (ranks->rank == 1) {
            atomic_store(&ranks->shared->words[round % 2], lie_to(&id, first_seed + round));
        } else {
            result = ncclCommInitRank(&comm, 2, id, 0);
            CHECK(result == ncclSuccess || strlen(ncclGetLastError(NULL)) > 0);
            CHECK((comm != NULL) == (result == ncclSuccess));
            CHECK_NCCL(ncclCommAbort(comm));
        }
        ranks_barrier(ranks);
        const uint64_t told = atomic_load(&ranks->shared->words[round % 2]);
        CHECK(ranks->rank == 1 || told == TOLD_ANY || (told == TOLD_ATTACHED) == (result == ncclSuccess));
    }
    for (int lie = 0; lie < LIES && ranks->rank == 1; lie++)
        CHECK(told_count[lie] > 0 && attached_count > 0);
}

static void lies(void **state)
{
    static const char *const quick[] = {"SHUNT_TIMEOUT_MS", "3000", "SHUNT_SCRATCH_BYTES", "1M", NULL};
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 2, .env = quick, .body = body};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lies)};
    if (argc > 1)
        first_seed = strtoull(argv[1], NULL, 10);
    cpu_limit(180);
    return cmocka_run_group_tests_name("peer", tests, NULL, NULL);
}
