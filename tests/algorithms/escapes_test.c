/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which words need an escape, which makes a message slower: those that mark.h names, not those that programs fill
 * memory with. A rank sends one vector to a peer that never calls, and the test counts the words stored at the peer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/data.h"
#include "world.h"

enum { SCRATCH = 1 << 20, WORDS = 4 };

static const struct {
    alg_collective_t collective;
    const char *algorithm;
} senders[] = {
    {ALG_ALL_GATHER, "push"},     {ALG_ALL_TO_ALL, "push"}, {ALG_BROADCAST, "push"},     {ALG_SCATTER, "push"},
    {ALG_REDUCE_SCATTER, "push"}, {ALG_REDUCE, "push"},     {ALG_ALL_REDUCE, "oneshot"}, {ALG_SEND_RECV, "pairs"},
};

/* Words of `bytes` that are not all-ones. */
static uint32_t count_stored(const uint8_t *at, size_t bytes)
{
    uint32_t stored = 0;
    for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, at + i, sizeof word);
        stored += word != UINT32_MAX;
    }
    return stored;
}

/* Rank 0, or 1 where rank 0 only receives, sends vectors of this word. How many words its peer gets. */
static uint32_t words_for(const alg_algorithm_t *algorithm, uint32_t word)
{
    world_t *w = world_make(2, ALG_MEMORY_PEER, SCRATCH);
    const uint32_t rank = algorithm->collective == ALG_REDUCE;
    uint32_t input[2 * WORDS], output[2 * WORDS];
    for (uint32_t i = 0; i < 2 * WORDS; i++)
        input[i] = word;
    const alg_message_t message = {input, sizeof(uint32_t) * WORDS, 1 - rank, true, false};
    const alg_call_t call = {.collective = algorithm->collective,
                             .input = input,
                             .output = output,
                             .count = WORDS,
                             .type = ALG_INT32,
                             .blocks = 1,
                             .threads = 1,
                             .messages = &message,
                             .message_count = algorithm->collective == ALG_SEND_RECV};
    alg_team_t team = world_team(w, rank);
    team.limit = alg_limit(1000000, 0);
    (void)algorithm->launch_cpu(&team, &call);
    const uint32_t stored =
        count_stored(w->scratch[1 - rank] + w->map.half_offset, w->map.flags_offset - w->map.half_offset);
    world_free(w);
    return stored;
}

static void escapes_are_of_no_common_word(void **state)
{
    (void)state;
    static const uint32_t common[] = {UINT32_MAX, UINT32_MAX - 1, INT32_MAX,  1,          0x80000000, 0x7fff7fff,
                                      0xffc0ffc0, 0x7fc07fc0,     0x3f800000, 0x3f803f80, 0xbc00bc00, 0x80808080,
                                      0x7f7f7f7f, 0xff800000,     0xff80ff80, 0xfc00fc00, 0xffefffff, 0x7fefffff};
    bool any = false;
    for (size_t s = 0; s < sizeof senders / sizeof senders[0]; s++) {
        const alg_algorithm_t *algorithm = alg_find(senders[s].collective, senders[s].algorithm);
#ifdef PART /* a mutant has few kernels */
        if (algorithm == NULL)
            continue;
#endif
        assert_non_null(algorithm);
        any = true;
        const uint32_t alone = words_for(algorithm, 0);
        assert_true(alone >= WORDS);
        for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
            assert_int_equal(words_for(algorithm, common[i]), alone);
        assert_int_equal(words_for(algorithm, DATA_ESCAPED), alone + 1);
        assert_int_equal(words_for(algorithm, DATA_ESCAPED ^ 1), alone + 1);
    }
    assert_true(any);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(escapes_are_of_no_common_word)};
    return world_run("escapes", tests, sizeof tests / sizeof tests[0], argc, argv);
}
