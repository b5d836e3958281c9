/* SPDX-License-Identifier: Apache-2.0 */
/*
 * algorithm.h - what an algorithm is, and what it is given.
 *
 * The folder's main header; shim/ also includes scratch.h and multihost/multihost.h. An algorithm knows ranks, peer
 * pointers, a scratch map, buffers and a stream, but not NCCL's API, environment variables or communicators. All is
 * plain data that compiles as C17, C++17 and CUDA.
 */
#ifndef SHUNT_ALGORITHM_H
#define SHUNT_ALGORITHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ALG_MAX_RANKS 8

/* The values of ncclDataType_t; shim/ asserts it. */
typedef enum alg_type {
    ALG_INT8 = 0,
    ALG_UINT8 = 1,
    ALG_INT32 = 2,
    ALG_UINT32 = 3,
    ALG_INT64 = 4,
    ALG_UINT64 = 5,
    ALG_FLOAT16 = 6,
    ALG_FLOAT32 = 7,
    ALG_FLOAT64 = 8,
    ALG_BFLOAT16 = 9,
    ALG_FLOAT8_E4M3 = 10,
    ALG_FLOAT8_E5M2 = 11,
    ALG_TYPE_COUNT = 12
} alg_type_t;

/* The first five have the values of ncclRedOp_t; shim/ asserts it. */
typedef enum alg_op {
    ALG_SUM = 0,
    ALG_PROD = 1,
    ALG_MAX = 2,
    ALG_MIN = 3,
    ALG_AVG = 4,
    ALG_PREMUL_SUM = 5 /* each rank's input times that rank's own scalar */
} alg_op_t;

typedef enum alg_device { ALG_DEVICE_CUDA = 0, ALG_DEVICE_HOST = 1 } alg_device_t;

/* Bytes of one element; 0 for an invalid type. */
size_t alg_type_bytes(alg_type_t type);

/*
 * ---- The scratch of one rank, if it is whole -----------------------------------
 *
 *   0        control: counters of this rank's kernels (never written by peers; of a scratch in the host's memory:
 *            elsewhere, alg_team_t), and the mailboxes of the attach proof
 *   4 KiB    half 0  |  raw data with a sentinel. Between two calls both halves
 *   ...      half 1  |  are all-ones ("armed") in every word.
 *   ...      places  |  armed, too: short calls, one each in turn (places.h)
 *   ...      rings   |  messages of pairs of ranks (sendrecv/ring.h): armed, but for what was sent and not yet
 *                       received. Then, if there is room, slots and flags of long messages (sendrecv/long.h):
 *                       all-ones at the start alone
 *   ...      flags   |  staged and bulk: words a channel and peer, whose values only grow
 *   ...      counts  |  how far each ring has come
 *   ...      staging |  data that flags guard: staged's, and in the half where it gathers bulk's (bulk/move.h)
 *
 * Rings and slots of messages have credits of their own. One rule guards all else, whatever a call's collective, layout
 * and grid: a call ends on a rank only after that rank has heard from every rank in that call, directly or through
 * others. A rank that has no data for a peer sends it a notice instead (notice.h; the flags of staged and bulk go to
 * all ranks anyway). So when any rank begins call e+2, every rank has ended call e.
 *
 * Halves: call number e (counted on the device) uses only half e & 1, and reads and re-arms every word that peers wrote
 * there: the half is armed everywhere when call e+2 begins. Kernel boundaries order the re-arming before the next data.
 * Short broadcasts, or reduces, of rising roots in a row count as one call (series.h). Short calls without a root use
 * places, so that one kernel may serve several (places.h).
 *
 * A kernel that leaves a call before its end sets ALG_EPOCH_STOPPED. Kernels behind it leave before their first store,
 * since a peer may still be in that call. Peers are told at ALG_STOP_OFFSET, unless an abort ended the wait.
 *
 * On the host device a rank may leave, or its process end, as soon as its part is done: what it stored stays. Peers
 * whose call needs more of it leave that call.
 */
enum {
    ALG_CONTROL_BYTES = 4096,
    ALG_EPOCH_OFFSET = 0,     /* uint64_t: counts the calls on this scratch (epoch.h) */
    ALG_SERIES_OFFSET = 8,    /* uint64_t: the last series of rooted calls (series.h) */
    ALG_TAKEN_OFFSET = 128,   /* uint64_t: of this call; 0 between calls (bulk/roles.h) */
    ALG_LOOK_OFFSET = 256,    /* uint64_t, CUDA: when a waiting kernel last looked at the host's words */
    ALG_STOP_OFFSET = 512,    /* ALG_MAX_RANKS words of 8 bytes: peer r stores 1 when its wait ran out of time */
    ALG_ENDED_OFFSET = 1024,  /* uint64_t, host device: collectives ended on this rank, for peers to read */
    ALG_CALLS_OFFSET = 1032,  /* uint64_t, host device: the same count, for this rank alone */
    ALG_MAILBOX_OFFSET = 2048 /* ALG_MAX_RANKS words of 8 bytes, one each peer, for the attach proof */
};

/* In the word at ALG_EPOCH_OFFSET: a call was not finished here. */
#define ALG_EPOCH_STOPPED UINT64_C(1)

/* The most channels of a staged call: the warps of 64 blocks of 16, or of 128 blocks of 8. */
enum { ALG_STAGED_CHANNELS = 1024 };
/* In the host's memory, where a block is a channel. */
enum { ALG_SHM_CHANNELS = 128 };

typedef enum alg_memory {
    ALG_MEMORY_PEER = 0, /* device memory, into which the peers store */
    ALG_MEMORY_SHM = 1,  /* the host's memory: a rank stores into its own, and its peers load (hostmem/outbox.h) */
    ALG_MEMORY_COUNT = 2,
    ALG_MEMORY_NETWORK = ALG_MEMORY_COUNT /* ALG_MEMORY_PEER within each of several hosts; between hosts, memory that
                                             kernels share with their proxy (multihost/relay.h) */
} alg_memory_t;

/* A scratch may come in pieces: the first at the start, each other one when a call first needs it, on all ranks. Their
 * addresses are reserved from the start.
 *
 *   first    control, flags, counts, places, and two short halves, for calls of up to short_most bytes
 *   halves   half 0, half 1: longer calls of the same algorithms
 *   rings    messages
 *   staging  staged and bulk
 *
 * A call uses the short halves or the others by its bytes alone, so all ranks use the same ones. The one number of
 * calls guards both: half e & 1 of either is armed when call e+2 begins. */
enum { ALG_PIECE_FIRST = 0, ALG_PIECE_HALVES = 1, ALG_PIECE_RINGS = 2, ALG_PIECE_STAGING = 3, ALG_PIECES = 4 };
typedef struct alg_span {
    size_t offset, bytes;
} alg_span_t;

/* Counts of the rings: four kinds, 8 bytes for every peer and channel. Then a page for sendrecv/long.h. */
enum {
    ALG_PAIR_CHANNELS = 512,
    ALG_LONG_OFFSET = 4 * ALG_MAX_RANKS * ALG_PAIR_CHANNELS * 8,
    ALG_COUNTS_BYTES = ALG_LONG_OFFSET + 4096
};

typedef struct alg_map {
    alg_memory_t memory;
    size_t total_bytes;
    size_t half_offset; /* of half 0; half 1 follows */
    size_t half_bytes;
    size_t places_offset; /* behind half 1, or short half 1 */
    size_t places_bytes;
    size_t rings_offset; /* of messages, and their list */
    size_t rings_bytes;
    size_t flags_offset; /* staged's and bulk's */
    size_t flags_bytes;
    size_t counts_offset;
    size_t staging_offset;
    size_t staging_bytes;
    uint32_t pieces;              /* 1: the whole; or ALG_PIECES */
    alg_span_t piece[ALG_PIECES]; /* multiples of 2 MiB, if there are several */
    size_t short_offset;          /* of short half 0, if there are several pieces */
    size_t short_bytes;
    uint64_t short_most; /* the longest call that uses them */
    bool rings_first;    /* the rings are part of the first piece */
} alg_map_t;

/* The map for a scratch of up to `bytes`, the same on every rank. False: `bytes` is too small for any algorithm (under
 * 1 MiB). */
bool alg_map_init(alg_map_t *map, size_t bytes);
/* Lay the same areas out in pieces, unless the scratch is small. The first has 4 MiB for up to two ranks, else 8; with
 * `rings_first` also the rings: for the host device, where a rank may have left before others' first message, and
 * nobody else takes it. */
void alg_map_cut(alg_map_t *map, uint32_t nranks, bool rings_first);
/* What is all-ones at the start in a piece: spans, up to 2 of them. The rest is zero. */
uint32_t alg_map_armed(const alg_map_t *map, uint32_t piece, alg_span_t span[2]);
/* alg_map_init for a scratch in the host's memory, which is pinned and scarce: at most ALG_SHM_MOST_BYTES. Halves hold
 * marked vectors, staging holds data behind flags; all but the rings is zero at the start. */
#define ALG_SHM_MOST_BYTES ((size_t)12 << 20)
/* Layout of a rank's own words in memory of its device (alg_team_t.own): the control page, then counts. */
enum { ALG_OWN_BYTES = ALG_CONTROL_BYTES + ALG_COUNTS_BYTES };
bool alg_map_init_shm(alg_map_t *map, size_t bytes);

/* Shared by a rank's kernels and its host; no peer touches it. On CUDA: pinned, mapped host memory. */
typedef struct alg_control {
    uint32_t abort;  /* host -> kernel: leave every wait now */
    uint32_t status; /* kernel -> host: an alg_status_t */
    uint32_t gone;   /* host device, host -> kernel: ranks (bits) from which nothing more comes */
    uint32_t reserved;
    /* Kernel -> host, after 0.2 ms of waiting (over a link), and then every 0.1 ms: what it waits in. */
    uint64_t wait_id;    /* alg_call_t's `id`, or its low bits (alg_limit) */
    uint64_t wait_epoch; /* the word at ALG_EPOCH_OFFSET */
    uint64_t wait_beat;  /* another value each time */
    uint64_t reserved_too[3];
    uint64_t stop_at[ALG_MAX_RANKS]; /* this rank's word at ALG_STOP_OFFSET in peer r's scratch, as kernels address it;
                                        0: no peer to tell */
    uint64_t stop_here;              /* the own words at ALG_STOP_OFFSET; 0: no peer tells */
} alg_control_t;

typedef enum alg_status {
    ALG_STATUS_OK = 0,
    ALG_STATUS_TIMEOUT = 1,
    ALG_STATUS_PEER_DEAD = 2, /* host device: a peer that the call needs has left, or its process is gone */
    ALG_STATUS_ABORTED = 3,   /* launch_host only: the host raised `abort` */
    ALG_STATUS_PEER_LEFT = 4  /* a peer's wait ran out of time, or its connection ended */
} alg_status_t;

/* A wait's limit and the call's id in one kernel argument: with a limit, which is rounded up to ms, the id's low
 * ALG_LIMIT_BITS; without, ALG_LIMIT_NONE and all 63 bits. 0: no limit, no id. */
enum { ALG_LIMIT_BITS = 35 };
#define ALG_LIMIT_NONE (UINT64_C(1) << 63)
static inline uint64_t alg_limit(uint64_t timeout_ns, uint64_t id)
{
    const uint64_t most_ms = (UINT64_C(1) << (63 - ALG_LIMIT_BITS)) - 1, ms = (timeout_ns + 999999) / 1000000;
    if (timeout_ns == 0)
        return ALG_LIMIT_NONE | id;
    return (ms < most_ms ? ms : most_ms) << ALG_LIMIT_BITS | (id & ((UINT64_C(1) << ALG_LIMIT_BITS) - 1));
}

/* Passed to kernels by value. */
typedef struct alg_team {
    uint32_t rank;
    uint32_t nranks;
    uint8_t *scratch[ALG_MAX_RANKS]; /* rank r's scratch, as this process (CUDA: this device) addresses it */
    uint8_t *own;              /* its control words, in memory of its device: the scratch's head if peers map that */
    uint8_t *own_counts;       /* its counts of the rings, in the same place */
    alg_control_t *control;    /* as the device addresses it */
    uint64_t limit;            /* alg_limit */
    uint32_t dependent_launch; /* CUDA: kernels support programmatic dependent launch (code for sm_90 or newer) */
    int32_t priority;          /* CUDA: priority of launches, as for cudaStreamCreateWithPriority; 0: none */
    uint64_t half_offset;      /* from the map */
    uint64_t half_bytes;
    uint64_t places_offset;
    uint64_t places_bytes;
    uint64_t rings_offset;
    uint64_t rings_bytes;
    uint64_t flags_offset;
    uint64_t counts_offset;
    uint64_t staging_offset;
    uint64_t staging_bytes;
    /* Several hosts: the team is the ranks of one host, and every host has as many. This rank reaches the ranks of its
     * number on other hosts through the relay. */
    uint32_t host;
    uint32_t hosts;          /* 0: one host */
    uint8_t *relay;          /* multihost/relay.h */
    struct alg_hosts *every; /* host device: how each rank reaches every other (multihost/network.cc) */
} alg_team_t;

typedef enum alg_collective {
    ALG_ALL_REDUCE = 0,
    ALG_REDUCE_SCATTER = 1,
    ALG_REDUCE = 2,
    ALG_ALL_GATHER = 3,
    ALG_ALL_TO_ALL = 4,
    ALG_BROADCAST = 5,
    ALG_GATHER = 6,
    ALG_SCATTER = 7,
    ALG_SEND_RECV = 8, /* messages: not a collective, but used as a key like one */
    ALG_COLLECTIVE_COUNT = 9
} alg_collective_t;

/* "allreduce", "reducescatter", "reduce", "allgather", "alltoall", "broadcast", "gather", "scatter", "sendrecv"; NULL
 * for an invalid value. */
const char *alg_collective_name(alg_collective_t collective);
/* ALG_COLLECTIVE_COUNT: none has that name. */
alg_collective_t alg_collective_find(const char *name);
bool alg_collective_reduces(alg_collective_t collective);
bool alg_collective_rooted(alg_collective_t collective);
/* A rank's larger buffer has this many times `count` elements: nranks where every rank has its own block, else 1.
 * Tables and limits count the bytes of this buffer. */
uint32_t alg_collective_blocks(alg_collective_t collective, uint32_t nranks);

/* Of ALG_SEND_RECV. Any alignment; never empty. */
typedef struct alg_message {
    void *buffer; /* only read if it is sent */
    uint64_t bytes;
    uint32_t peer; /* may be this rank itself */
    bool send;     /* to the peer; false: from it */
    bool bulk;     /* by bulk copies, of an algorithm with bulk_messages; alike at both ends */
} alg_message_t;

/* Limit of a call. A kernel takes up to ALG_MAX_RANKS (device/parts.h) or PLACES_LIST (device/places.h). */
enum { ALG_MOST_PARTS = 64 };
/* Bytes of a part are whole rows of a grid, each the work of a warp. */
enum { ALG_ROW_BYTES = 512 };
typedef struct alg_part {
    uint32_t root; /* where the collective has one */
    const void *input;
    void *output;
    uint64_t count;
} alg_part_t;

/* One call. Kernels get a kernel_call_t instead (device/kernel_call.h). */
typedef struct alg_call {
    alg_collective_t collective;
    uint64_t id; /* 63 bits that waiting kernels report (alg_control_t); the caller puts them into the team */
    /* A collective. `count` is NCCL's: the elements of a block where every rank has one, else of the message. Buffers
     * have any alignment that the type allows; they are disjoint, or in place as NCCL defines it. A buffer that the
     * collective does not use on this rank is not touched. */
    uint32_t root; /* where the collective has one */
    const void *input;
    void *output;
    uint64_t count;
    alg_type_t type;
    alg_op_t op;
    const void *scalar_pointer; /* ALG_PREMUL_SUM: device memory with one element, read by the kernel; or NULL */
    uint64_t scalar_bits;       /* ALG_PREMUL_SUM with no pointer: the element's bytes, low end first */
    /* Several calls of a collective that has part_bytes, in place of root, buffers and count. They progress side by
     * side, but as if they were calls one after the other: on other ranks they may be. None is empty or longer than
     * part_bytes, and roots rise. The list is the caller's again after the launch. */
    uint32_t part_count; /* up to ALG_MOST_PARTS; 0: the call itself alone */
    const alg_part_t *parts;
    /* ALG_SEND_RECV, which uses none of the above. The messages progress side by side; those of one pair in one
     * direction arrive in the order of the list, launch after launch. Sends and receives of this rank to itself match
     * in number, bytes and order. The launch copies the list. */
    uint32_t message_count;
    const alg_message_t *messages;
    /* The grid; all but `blocks` for CUDA alone. A collective's blocks and threads are the same on every rank: the
     * row's, lowered by `shape`. They may differ for calls with `parts`, as ranks may group calls differently, and
     * `blocks` where the algorithm has unaligned_blocks. For messages they are upper limits. shim_share_grant uses
     * aligned_blocks, sets the last three, and may change blocks and threads of an algorithm with any_grid. */
    uint32_t blocks;
    uint32_t aligned_blocks; /* without those of unaligned_blocks: the same whenever a program captures the call */
    uint32_t threads;        /* of a block; a multiple of 32 */
    uint32_t most_blocks;    /* that fit this rank's room on its GPU; 0: all */
    uint32_t sure_blocks;    /* the same for an algorithm with spare_blocks; 0: all */
    uint32_t early;          /* the stream's next kernel may be placed while this one runs */
} alg_call_t;

/* ---- Algorithms ---------------------------------------------------------------- */

typedef struct alg_algorithm {
    const char *name;
    alg_collective_t collective;
    /* The most bytes (of alg_collective_blocks; of one message) of a call with this scratch; UINT64_MAX: any. Pure. */
    uint64_t (*max_bytes)(const alg_map_t *map, uint32_t nranks, alg_type_t type);
    /* Lower a row's blocks and threads to what `bytes` can use. Pure. */
    void (*shape)(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads);
    /* Enqueue the call's kernels on `stream` (a cudaStream_t) of the current device: no allocation, legal in capture. A
     * cudaError_t; NULL without CUDA. */
    int (*launch_cuda)(const alg_team_t *team, const alg_call_t *call, void *stream);
    /* Run the kernel to its end in the calling thread; with blocks > 1, each block in a thread of its own. An
     * alg_status_t; unless OK, the output is undefined. */
    int (*launch_host)(const alg_team_t *team, const alg_call_t *call);
    /* Load the kernels for this number of ranks into the current device, so that no later launch blocks behind a
     * waiting kernel of another rank in this process. A cudaError_t; NULL without CUDA. */
    int (*preload_cuda)(uint32_t nranks);
    alg_memory_t memory;
    /* The most bytes of such a call, whatever its count, that can be a part of another one; NULL: none can. Pure. */
    uint64_t (*part_bytes)(const alg_team_t *team, const alg_call_t *call);
    /* Not 0: blocks take longer where this rank's buffers are unaligned or its input is multiplied first
     * (ALG_PREMUL_SUM), so the rank's grid has so many at least. */
    uint32_t unaligned_blocks;
    /* A rank's blocks and threads are its own choice. */
    bool any_grid;
    /* Blocks beyond sure_blocks leave a call rather than wait in it for a rank that has not begun it. */
    bool spare_blocks;
    /* ALG_SEND_RECV: a call's `bulk` messages go by bulk copies, the others through rings, as with `pairs`. */
    bool bulk_messages;
    /* What one block of `threads` takes of a multiprocessor, of ALG_ROOM: a power of two. Blocks that add up to
     * ALG_ROOM fit one: the compiler keeps their registers so few. Pure. */
    uint32_t (*block_room)(uint32_t nranks, uint32_t threads);
    uint32_t piece; /* of the scratch, which its calls need; the short ones of ALG_PIECE_HALVES do not */
} alg_algorithm_t;

/* Lanes that a multiprocessor holds at 64 of its 65,536 registers each (CUDA C++ Programming Guide, compute
 * capability 8.0 to 10.0). */
enum { ALG_ROOM = 1024 };

/* Whether all blocks of a collective's buffers begin at multiples of 16 bytes. Ranks may differ. */
static inline bool alg_call_is_aligned(const alg_call_t *call)
{
    const uint64_t step = alg_collective_blocks(call->collective, 2) > 1 ? call->count * alg_type_bytes(call->type) : 0;
    return ((uintptr_t)call->input | (uintptr_t)call->output | step) % 16 == 0;
}

/* The piece that a call of so many bytes (of alg_collective_blocks) needs beside the first; ALG_PIECE_FIRST: none.
 * Pure. */
static inline uint32_t alg_piece_of(const alg_map_t *map, const alg_algorithm_t *algorithm, uint64_t bytes)
{
    if (map->pieces == 1)
        return ALG_PIECE_FIRST;
    const bool first = algorithm->piece == ALG_PIECE_HALVES  ? bytes <= map->short_most
                       : algorithm->piece == ALG_PIECE_RINGS ? map->rings_first
                                                             : false;
    return first ? (uint32_t)ALG_PIECE_FIRST : algorithm->piece;
}

/* Bytes of a call, or of its first part; of messages 0. */
static inline uint64_t alg_call_bytes(const alg_call_t *call, uint32_t nranks)
{
    if (call->collective == ALG_SEND_RECV)
        return 0;
    const uint64_t count = call->part_count > 0 ? call->parts[0].count : call->count;
    return count * alg_type_bytes(call->type) * alg_collective_blocks(call->collective, nranks);
}

/* In registry order. */
extern const alg_algorithm_t *const alg_registry[];
extern const uint32_t alg_registry_count;
/* Between hosts on the host device, by collective; all-reduce has the exchange (multihost/network.cc). Not in the
 * registry, since no table or policy can choose them. */
extern const alg_algorithm_t alg_network[];
/* NULL: none has that name. */
const alg_algorithm_t *alg_find(alg_collective_t collective, const char *name);

#ifdef __cplusplus
}
#endif
#endif
