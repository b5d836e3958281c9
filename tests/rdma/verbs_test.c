/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guarantees that the project relies on when it puts data and a flag by RDMA, checked on real verbs: writes of one
 * queue pair arrive in order, and a write that is not permitted or cannot arrive completes with an error. Runs in
 * scripts/rdma-vm.
 */
#include "pair.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    ROUNDS = 400,
    DATA_BYTES = 16384,    /* up to 16 packets */
    FLAG = PAIR_BYTES - 8, /* an end's flag is behind its data, in memory that data never reaches */
    PATIENT_TIMEOUT = 18,  /* 1.07 s: an emulated processor may pause for a while */
    SHORT_TIMEOUT = 14,    /* 67 ms */
    RETRIES = 3,
    HANG_SECONDS = 200,
};

/* ---- Order ------------------------------------------------------------------------------ */

/* A different length every time: some fill packets, some end in the middle of one. */
static uint32_t round_bytes(uint64_t round)
{
    return (uint32_t)(1 + round * 2654435761u % DATA_BYTES);
}

static _Atomic uint64_t *flag_of(pair_t *pair, int end)
{
    return (_Atomic uint64_t *)(void *)(pair->end[end].memory + FLAG);
}

static void put_flag(pair_t *pair, int end, uint64_t source, uint64_t value)
{
    memcpy(pair->end[end].memory + source, &value, sizeof(value));
    pair_write(pair, end, source, FLAG, sizeof(value), pair_key(pair, 1 - end), 1);
}

typedef struct reader {
    pair_t *pair;
    uint64_t wrong; /* rounds in which the flag was seen before the data */
} reader_t;

/* cmocka's assertions must be made in its own thread. */
static void *read_rounds(void *argument)
{
    reader_t *reader = argument;
    const char *data = reader->pair->end[1].memory;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        while (atomic_load_explicit(flag_of(reader->pair, 1), memory_order_acquire) < round)
            ;
        int wrong = 0;
        for (uint32_t i = 0; i < round_bytes(round); i++)
            wrong |= data[i] != (char)round;
        reader->wrong += (uint64_t)wrong;
        put_flag(reader->pair, 1, FLAG - 8, round);
    }
    return NULL;
}

static void flag_after_data(void **state)
{
    (void)state;
    pair_t pair;
    pair_open(&pair, PATIENT_TIMEOUT, 7);
    reader_t reader = {.pair = &pair};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_rounds, &reader), 0);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        memset(pair.end[0].memory, (char)round, DATA_BYTES);
        pair_write(&pair, 0, 0, 0, round_bytes(round), pair_key(&pair, 1), 0);
        put_flag(&pair, 0, FLAG - 8, round);
        /* One completion a round: it covers the data too, and the queue never fills up. */
        assert_int_equal(pair_completion(&pair, 0), IBV_WC_SUCCESS);
        while (atomic_load_explicit(flag_of(&pair, 0), memory_order_acquire) < round)
            ;
        assert_int_equal(pair_completion(&pair, 1), IBV_WC_SUCCESS);
    }
    pthread_join(thread, NULL);
    assert_int_equal(reader.wrong, 0);
    pair_close(&pair);
}

/* ---- Failures --------------------------------------------------------------------------- */

static void wrong_key(void **state)
{
    (void)state;
    pair_t pair;
    pair_open(&pair, PATIENT_TIMEOUT, 7);
    memset(pair.end[0].memory, 1, 64);
    pair_write(&pair, 0, 0, 0, 64, pair_key(&pair, 1) ^ 0x100, 1);
    assert_int_equal(pair_completion(&pair, 0), IBV_WC_REM_ACCESS_ERR);
    assert_int_equal(pair.end[1].memory[0], 0);
    /* The queue pair is unusable from then on: later posts come back, and are not written. */
    pair_write(&pair, 0, 0, 0, 64, pair_key(&pair, 1), 1);
    assert_int_equal(pair_completion(&pair, 0), IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(pair.end[1].memory[0], 0);
    pair_close(&pair);
}

static void beyond_memory(void **state)
{
    (void)state;
    pair_t pair;
    pair_open(&pair, PATIENT_TIMEOUT, 7);
    pair_write(&pair, 0, 0, PAIR_BYTES - 32, 64, pair_key(&pair, 1), 1);
    assert_int_equal(pair_completion(&pair, 0), IBV_WC_REM_ACCESS_ERR);
    pair_close(&pair);
}

static void mend_wire(void)
{
    assert_int_equal(system("sh \"$RDMA_VM_WIRE\""), 0);
}

static void lost_link(void **state)
{
    (void)state;
    pair_t pair;
    pair_open(&pair, SHORT_TIMEOUT, RETRIES);
    pair_write(&pair, 0, 0, 0, 64, pair_key(&pair, 1), 1);
    assert_int_equal(pair_completion(&pair, 0), IBV_WC_SUCCESS);
    assert_int_equal(system("ip link set veth1 down"), 0);
    memset(pair.end[0].memory, 1, 64);
    pair_write(&pair, 0, 0, 0, 64, pair_key(&pair, 1), 1);
    enum ibv_wc_status status = pair_completion(&pair, 0);
    mend_wire();
    assert_int_equal(status, IBV_WC_RETRY_EXC_ERR);
    assert_int_equal(pair.end[1].memory[0], 0);
    pair_close(&pair);
    /* New ones work as soon as the wire does. */
    pair_open(&pair, PATIENT_TIMEOUT, 7);
    pair_write(&pair, 0, 0, 0, 64, pair_key(&pair, 1), 1);
    assert_int_equal(pair_completion(&pair, 0), IBV_WC_SUCCESS);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flag_after_data),
        cmocka_unit_test(wrong_key),
        cmocka_unit_test(beyond_memory),
        cmocka_unit_test(lost_link),
    };
    alarm(HANG_SECONDS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
