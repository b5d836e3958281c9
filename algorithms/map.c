/* SPDX-License-Identifier: Apache-2.0 */
/* map.c - the layout of a scratch: a pure function, on which all ranks must agree. */
#include "algorithms/algorithm.h"

#include <assert.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

/* 8 bytes per phase, channel and peer. */
#define FLAGS_BYTES ((size_t)2 * ALG_STAGED_CHANNELS * ALG_MAX_RANKS * 8)
#define SHM_FLAGS_BYTES ((size_t)ALG_SHM_CHANNELS * ALG_MAX_RANKS * 8)

static_assert(ALG_EPOCH_OFFSET % 16 == 0 && ALG_SERIES_OFFSET == ALG_EPOCH_OFFSET + 8, "these two are read in one go");
static_assert(ALG_SERIES_OFFSET + 8 <= ALG_TAKEN_OFFSET, "words of the control page overlap");
static_assert(ALG_TAKEN_OFFSET + 8 <= ALG_LOOK_OFFSET, "words of the control page overlap");
static_assert(ALG_LOOK_OFFSET + 8 <= ALG_STOP_OFFSET, "words of the control page overlap");
static_assert(ALG_STOP_OFFSET + 8 * ALG_MAX_RANKS <= ALG_ENDED_OFFSET, "words of the control page overlap");
static_assert(ALG_CALLS_OFFSET + 8 <= ALG_MAILBOX_OFFSET, "words of the control page overlap");
static_assert(ALG_MAILBOX_OFFSET + 8 * ALG_MAX_RANKS <= ALG_CONTROL_BYTES, "mailboxes leave the control page");
static_assert(SHM_FLAGS_BYTES % 4096 == 0, "staging begins on a page");
static_assert(FLAGS_BYTES % 4096 == 0 && ALG_COUNTS_BYTES % 4096 == 0, "staging begins on a page");

/* Smaller scratches stay one piece. */
#define LEAST_CUT (32 * MIB)
#define UNIT (2 * MIB)

static size_t round_down(size_t bytes, size_t unit)
{
    return bytes / unit * unit;
}

static void make_whole(alg_map_t *map)
{
    map->pieces = 1;
    map->piece[ALG_PIECE_FIRST] = (alg_span_t){0, map->total_bytes};
}

bool alg_map_init(alg_map_t *map, size_t bytes)
{
    if (bytes < MIB)
        return false;
    *map = (alg_map_t){.memory = ALG_MEMORY_PEER};
    /* The shares: docs/lab/proofs.md. */
    const size_t rings = round_down(bytes / 5, 4 * KIB);
    const size_t rest = bytes - rings - ALG_CONTROL_BYTES - ALG_COUNTS_BYTES;
    const size_t staging = round_down(rest / 128 * 49, 4 * KIB);
    map->half_offset = ALG_CONTROL_BYTES;
    map->places_bytes = round_down(bytes / 40, 4 * KIB);
    map->half_bytes = round_down((rest - staging - map->places_bytes) / 2, 4 * KIB);
    map->places_offset = map->half_offset + 2 * map->half_bytes;
    map->rings_offset = map->places_offset + map->places_bytes;
    map->rings_bytes = rings;
    map->flags_offset = map->rings_offset + rings;
    map->flags_bytes = staging > 2 * FLAGS_BYTES ? FLAGS_BYTES : 0;
    map->counts_offset = map->flags_offset + map->flags_bytes;
    map->staging_offset = map->counts_offset + ALG_COUNTS_BYTES;
    map->staging_bytes = map->flags_bytes ? staging - map->flags_bytes : 0; /* half of it: a multiple of 16 */
    map->total_bytes = bytes;
    make_whole(map);
    return true;
}

static void put_piece(alg_map_t *map, uint32_t piece, size_t bytes)
{
    map->piece[piece] = (alg_span_t){map->total_bytes, (bytes + UNIT - 1) / UNIT * UNIT};
    map->total_bytes += map->piece[piece].bytes;
}

void alg_map_cut(alg_map_t *map, uint32_t nranks, bool rings_first)
{
    if (map->total_bytes < LEAST_CUT)
        return;
    const size_t peers = nranks > 2 ? nranks - 1 : 1;
    map->pieces = ALG_PIECES;
    map->total_bytes = 0;
    map->rings_first = rings_first;
    const size_t first = (nranks > 2 ? 8 : 4) * MIB;
    put_piece(map, ALG_PIECE_FIRST, first + (rings_first ? map->rings_bytes : 0));
    map->flags_offset = ALG_CONTROL_BYTES;
    map->counts_offset = map->flags_offset + map->flags_bytes;
    map->short_offset = map->counts_offset + ALG_COUNTS_BYTES;
    map->places_bytes = MIB;
    map->short_bytes = round_down((first - map->short_offset - map->places_bytes) / 2, 4 * KIB);
    map->places_offset = map->short_offset + 2 * map->short_bytes;
    /* One-shot all-reduce, broadcast and reduce have a slot per peer, in which four words of integers take five;
     * notices take 4 KiB (push.h). Tested: map.short_calls_fit. */
    map->short_most = round_down((map->short_bytes - 4 * KIB) / 5 * 4 / peers, KIB);
    put_piece(map, ALG_PIECE_HALVES, 2 * map->half_bytes);
    map->half_offset = map->piece[ALG_PIECE_HALVES].offset;
    put_piece(map, ALG_PIECE_RINGS, rings_first ? 0 : map->rings_bytes);
    map->rings_offset = rings_first ? first : map->piece[ALG_PIECE_RINGS].offset;
    put_piece(map, ALG_PIECE_STAGING, map->staging_bytes);
    map->staging_offset = map->piece[ALG_PIECE_STAGING].offset;
}

uint32_t alg_map_armed(const alg_map_t *map, uint32_t piece, alg_span_t span[2])
{
    if (map->memory == ALG_MEMORY_PINNED) {
        span[0] = (alg_span_t){map->rings_offset, map->rings_bytes};
        return 1;
    }
    if (map->pieces == 1) {
        span[0] = (alg_span_t){map->half_offset, 2 * map->half_bytes + map->places_bytes};
        span[1] = (alg_span_t){map->rings_offset, map->rings_bytes};
        return 2;
    }
    if (piece == ALG_PIECE_STAGING)
        return 0;
    span[0] = piece == ALG_PIECE_FIRST ? (alg_span_t){map->short_offset, 2 * map->short_bytes + map->places_bytes}
                                       : map->piece[piece];
    span[1] = (alg_span_t){map->rings_offset, map->rings_bytes};
    return piece == ALG_PIECE_FIRST && map->rings_first ? 2 : 1;
}

bool alg_map_init_shm(alg_map_t *map, size_t bytes)
{
    if (bytes < MIB)
        return false;
    if (bytes > ALG_SHM_MOST_BYTES)
        bytes = ALG_SHM_MOST_BYTES;
    *map = (alg_map_t){.memory = ALG_MEMORY_PINNED};
    /* Halves serve some 100 KiB; staging serves any length, in chunks. */
    const size_t rings = round_down(bytes / 3, 4 * KIB);
    map->half_offset = ALG_CONTROL_BYTES;
    map->half_bytes = round_down((bytes - rings) / 8, 4 * KIB);
    map->places_offset = map->half_offset + 2 * map->half_bytes;
    map->places_bytes = 0; /* calls use halves */
    map->rings_offset = map->places_offset;
    map->rings_bytes = rings;
    map->flags_offset = map->rings_offset + rings;
    map->flags_bytes = SHM_FLAGS_BYTES;
    map->counts_offset = map->flags_offset + map->flags_bytes;
    map->staging_offset = map->counts_offset + ALG_COUNTS_BYTES;
    map->staging_bytes = round_down(bytes - map->staging_offset, 4 * KIB);
    map->total_bytes = map->staging_offset + map->staging_bytes;
    make_whole(map);
    return true;
}
