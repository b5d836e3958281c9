/* SPDX-License-Identifier: Apache-2.0 */
/* fill.h - fills a kernel's lists from a call, and launches calls whose lists exceed a kernel's arguments. */
#ifndef SHUNT_FILL_H
#define SHUNT_FILL_H

#include <stdlib.h>
#include <string.h>

#include "algorithms/device/launch.h"
#include "algorithms/sendrecv/messages.h"

enum {
    PAIRS_FEW = 2 * ALG_MAX_RANKS, /* one message per list */
    PAIRS_MANY = 216,              /* fill 4 KiB of arguments, the most that every driver accepts */
    /* 8 ranks have 15 lists of ALG_PAIR_CHANNELS / 2 channels, 4 ranks 7 lists of ALG_PAIR_CHANNELS. */
    PAIRS_MOST_ITEMS = 15 * ALG_PAIR_CHANNELS / 2
};

#ifdef __CUDACC__
enum { PAIRS_LANES = 32 };
#else
enum { PAIRS_LANES = 1 };
#endif

enum { FILL_LISTS = 2 * MESSAGES_LISTS };

static inline uint32_t fill_list(const alg_message_t &m, bool bulk)
{
    return 2 * m.peer + (m.send ? MESSAGES_SEND : MESSAGES_RECEIVE) + (bulk && m.bulk ? MESSAGES_LISTS : 0);
}

typedef struct filled {
    uint32_t messages, items;
    uint32_t self; /* items (messages.h) of messages to this rank itself */
    uint32_t rows; /* of the fullest channel; UINT32_MAX if a list has several messages */
    bool aligned;  /* buffers of messages in rings are aligned to 16 bytes */
} filled_t;

/* Fills m. Fills `list` with messages begin .. begin + share - 1 of each peer and direction. bulk_end: message_end of
 * bulk messages; NULL: rings carry all messages. */
static inline filled_t messages_fill(messages_head &m, uint16_t *bulk_end, message_t *list, const alg_team_t *team,
                                     const alg_call_t *call, uint32_t begin, uint32_t share)
{
    uint32_t length[FILL_LISTS] = {0}, seen[FILL_LISTS] = {0}, channels[MESSAGES_LISTS] = {0};
    uint16_t next[FILL_LISTS];
    filled_t f = {0, 0, 0, 1, true};
    m.rings = rings_make(team->rings_bytes, team->nranks, PAIRS_LANES);
    m.early = call->early;
    m.shared_self = 0;
    for (uint32_t i = 0; i < call->message_count; i++)
        length[fill_list(call->messages[i], bulk_end)]++;
    const uint32_t lists = bulk_end ? (uint32_t)FILL_LISTS : (uint32_t)MESSAGES_LISTS;
    for (uint32_t l = 0; l < lists; l++) {
        const uint32_t rest = length[l] > begin ? length[l] - begin : 0;
        next[l] = (uint16_t)f.messages;
        f.messages += rest < share ? rest : share;
        f.rows = length[l] > 1 ? UINT32_MAX : f.rows;
        (l < MESSAGES_LISTS ? m.message_end : bulk_end - MESSAGES_LISTS)[l] = (uint16_t)f.messages;
    }
    for (uint32_t i = 0; i < call->message_count; i++) {
        const alg_message_t &one = call->messages[i];
        const uint32_t l = fill_list(one, bulk_end), at = seen[l]++;
        if (at < begin || at >= begin + share)
            continue;
        list[next[l]++] = message_t{(uint8_t *)one.buffer, one.bytes};
        if (l >= MESSAGES_LISTS)
            continue;
        f.aligned = f.aligned && (one.peer == team->rank || (uintptr_t)one.buffer % VEC == 0);
        const uint64_t rows = message_rows(one.bytes, PAIRS_LANES);
        const uint32_t wanted = rings_channels(m.rings, rows), deep = (uint32_t)((rows - 1) / wanted + 1);
        f.rows = deep > f.rows ? deep : f.rows;
        channels[l] = wanted > channels[l] ? wanted : channels[l];
    }
    for (uint32_t l = 0; l < MESSAGES_LISTS; l++) {
        f.items += l == 2 * team->rank + MESSAGES_RECEIVE ? 0 : channels[l];
        m.item_end[l] = (uint16_t)f.items;
    }
    f.self = channels[2 * team->rank + MESSAGES_SEND];
    return f;
}

/* Counts the items of `group` channels each, without messages to this rank itself. Sets `end` like item_end. */
static inline uint32_t messages_items(const messages_head &m, uint32_t rank, uint32_t group,
                                      uint16_t (&end)[MESSAGES_LISTS])
{
    uint32_t begin = 0, items = 0;
    for (uint32_t l = 0; l < MESSAGES_LISTS; l++) {
        const uint32_t channels = m.item_end[l] - begin;
        begin = m.item_end[l];
        items += l == 2 * rank + MESSAGES_SEND ? 0 : (channels + group - 1) / group;
        end[l] = (uint16_t)items;
    }
    return items;
}

/* Serves a call through a list in memory. launch(begin, share, done) launches the messages that messages_fill selects,
 * and sets `done` to their number. With too small a list, launches may deadlock unless all ranks group the same
 * messages. */
template <class L> static int messages_listed(const alg_team_t *team, const alg_call_t *call, L launch)
{
    const uint32_t count = call->message_count, room = messages_room(team->rings_bytes);
    const uint32_t share = count <= room ? count : room / FILL_LISTS;
    int error = 0;
    for (uint32_t begin = 0, all = 0; all < count && error == 0; begin += share) {
        uint32_t done = 0;
        error = launch(begin, share, done);
        all += done;
    }
    return error;
}

#ifdef __CUDACC__

typedef struct pairs_piece {
    uint32_t first, count, early;
    message_t message[PAIRS_MANY];
} pairs_piece_t;

static __global__ void pairs_store(const __grid_constant__ alg_team_t team, const __grid_constant__ pairs_piece_t piece)
{
    lane_begin((uintptr_t)team.own_counts, piece.early);
    for (uint32_t i = threadIdx.x; i < piece.count; i += blockDim.x)
        messages_list(team)[piece.first + i] = piece.message[i];
}

static int pairs_store_all(const alg_team_t *team, const alg_call_t *call, const message_t *list, uint32_t count,
                           void *stream)
{
    pairs_piece_t piece;
    int error = 0;
    for (piece.first = 0; piece.first < count && error == 0; piece.first += PAIRS_MANY) {
        piece.early = call->early;
        piece.count = count - piece.first < (uint32_t)PAIRS_MANY ? count - piece.first : (uint32_t)PAIRS_MANY;
        memcpy(piece.message, list + piece.first, piece.count * sizeof(message_t));
        error = launch_grid(pairs_store, team, piece, 1, 128, 0, stream);
    }
    return error;
}

/* messages_listed with the list in device memory. bulk_end: see messages_fill. `list` is valid only during `launch`. */
template <class M, class E, class L>
static int messages_store_and_launch(const alg_team_t *team, const alg_call_t *call, void *stream, E bulk_end, L launch)
{
    const uint32_t room = messages_room(team->rings_bytes);
    message_t *list =
        (message_t *)malloc((call->message_count < room ? call->message_count : room) * sizeof(message_t));
    if (!list)
        return cudaErrorMemoryAllocation;
    const int error = messages_listed(team, call, [=](uint32_t begin, uint32_t share, uint32_t &done) {
        M m;
        m.message = messages_list(*team);
        const filled_t f = messages_fill(m, bulk_end(m), list, team, call, begin, share);
        const int failed = pairs_store_all(team, call, list, f.messages, stream);
        done = f.messages;
        return failed ? failed : launch(m, list, f);
    });
    free(list);
    return error;
}

#endif

#endif
