/* SPDX-License-Identifier: Apache-2.0 */
/* algorithm.h - the interface of algorithms: plain data for C17, C++17 and CUDA, without NCCL's API, environment
 * variables or communicators. */
#ifndef SHUNT_ALGORITHM_H
#define SHUNT_ALGORITHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ALG_MAX_RANKS 8

/* Values of ncclDataType_t (asserted in shim/). */
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

/* The first five are ncclRedOp_t's (asserted in shim/). */
typedef enum alg_op {
    ALG_SUM = 0,
    ALG_PROD = 1,
    ALG_MAX = 2,
    ALG_MIN = 3,
    ALG_AVG = 4,
    ALG_PREMUL_SUM = 5 /* each rank's input times its scalar */
} alg_op_t;

typedef enum alg_device { ALG_DEVICE_CUDA = 0, ALG_DEVICE_CPU = 1 } alg_device_t;

/* 0: invalid type. */
size_t alg_type_bytes(alg_type_t type);

/*
 * The scratch of one rank. "Armed": all-ones between calls.
 *
 *   control  8-byte words: this rank's counters (ALG_MEMORY_PINNED: in alg_team_t.own), words that peers write
 *   halves   vectors that show their own arrival (device/mark.h); armed
 *   places   for short calls, used in turn (device/places.h); armed
 *   rings    for messages (sendrecv/ring.h), armed while none is under way; behind them long messages (sendrecv/long.h)
 *   flags    a word per channel and peer, which only grows
 *   counts   each ring's position
 *   staging  data whose arrival flags announce
 *
 * Messages have credits. Collective e uses half e&1 (or a place), and ends on a rank only after that rank has heard
 * from every rank, directly or through others. A peer without data sends a notice (device/notice.h) or a flag. So when
 * any rank begins call e+2, every rank has ended call e and re-armed its half; kernel boundaries order this before the
 * data of call e+2. A series of short rooted calls counts as one call (device/series.h).
 *
 * A kernel that gives up a call sets ALG_EPOCH_STOPPED: later kernels leave before their first store, because a peer
 * may still be in that call. Unless the host aborted it, it also writes the peers' words at ALG_STOP_OFFSET. On the CPU
 * device a rank or its process may end once its part is done: its stores remain.
 */
enum {
    ALG_CONTROL_BYTES = 4096,
    ALG_EPOCH_OFFSET = 0,     /* device/epoch.h */
    ALG_SERIES_OFFSET = 8,    /* device/series.h */
    ALG_TAKEN_OFFSET = 128,   /* bulk/walk.h */
    ALG_LOOK_OFFSET = 256,    /* device/lane_cuda.cuh */
    ALG_STOP_OFFSET = 512,    /* word r: peer r stores 1 when it gives up a call */
    ALG_ENDED_OFFSET = 1024,  /* CPU device: ended collectives, for peers */
    ALG_CALLS_OFFSET = 1032,  /* CPU device: the same number, for this rank */
    ALG_MAILBOX_OFFSET = 2048 /* a word per peer, for the attach proof */
};

#define ALG_EPOCH_STOPPED UINT64_C(1)

/* Most channels (warps) of a staged call: 64 blocks of 16, or 128 of 8. */
enum { ALG_STAGED_CHANNELS = 1024 };
/* The same in pinned memory, where a channel is a block. */
enum { ALG_SHM_CHANNELS = 128 };

typedef enum alg_memory {
    ALG_MEMORY_PEER = 0,   /* device memory; peers store into it */
    ALG_MEMORY_PINNED = 1, /* pinned memory; a rank stores into its own, peers load from there */
    ALG_MEMORY_COUNT = 2,
    ALG_MEMORY_NETWORK = ALG_MEMORY_COUNT /* between nodes (nodes/relay.h); within a node as PEER */
} alg_memory_t;

/* A scratch may have several pieces at reserved addresses. The first piece is made at once: control, flags, counts,
 * places, and two short halves for calls of up to short_most bytes. Another piece is made when a call needs it. One
 * epoch counts the calls in both pairs of halves. */
enum { ALG_PIECE_FIRST = 0, ALG_PIECE_HALVES = 1, ALG_PIECE_RINGS = 2, ALG_PIECE_STAGING = 3, ALG_PIECES = 4 };
typedef struct alg_span {
    size_t offset, bytes;
} alg_span_t;

/* Counts: four of 8 bytes per peer and channel, then a page for sendrecv/long.h. */
enum {
    ALG_PAIR_CHANNELS = 512,
    ALG_LONG_OFFSET = 4 * ALG_MAX_RANKS * ALG_PAIR_CHANNELS * 8,
    ALG_COUNTS_BYTES = ALG_LONG_OFFSET + 4096
};

typedef struct alg_map {
    alg_memory_t memory;
    size_t total_bytes;
    size_t half_offset;
    size_t half_bytes;
    size_t places_offset;
    size_t places_bytes;
    size_t rings_offset;
    size_t rings_bytes;
    size_t flags_offset;
    size_t flags_bytes;
    size_t counts_offset;
    size_t staging_offset;
    size_t staging_bytes;
    uint32_t pieces;
    alg_span_t piece[ALG_PIECES];
    size_t short_offset;
    size_t short_bytes;
    uint64_t short_most; /* bytes of the largest call that uses the short halves */
    bool rings_first;
} alg_map_t;

/* Every rank computes the same map. False: `bytes` is below 1 MiB. */
bool alg_map_init(alg_map_t *map, size_t bytes);
/* Cuts a map of 32 MiB or more into pieces. rings_first (CPU device): the first piece has the rings, since a rank may
 * leave before its peers send their first message. */
void alg_map_cut(alg_map_t *map, uint32_t nranks, bool rings_first);
/* Returns the number of a piece's spans, at most 2, that begin as all-ones; the rest begins as zero. */
uint32_t alg_map_armed(const alg_map_t *map, uint32_t piece, alg_span_t span[2]);
#define ALG_SHM_MOST_BYTES ((size_t)12 << 20)
/* Bytes of alg_team_t.own with ALG_MEMORY_PINNED: control page, rings' counts. */
enum { ALG_OWN_BYTES = ALG_CONTROL_BYTES + ALG_COUNTS_BYTES };
/* alg_map_init for ALG_MEMORY_PINNED. Uses at most ALG_SHM_MOST_BYTES: pinned memory is scarce. */
bool alg_map_init_shm(alg_map_t *map, size_t bytes);

/* Words that kernels and host share; on CUDA in pinned, mapped memory. */
typedef struct alg_control {
    uint32_t abort;  /* to kernels: leave every wait now */
    uint32_t status; /* to the host: an alg_status_t */
    uint32_t gone;   /* to kernels, CPU device: ranks (bits) that send no more */
    uint32_t reserved;
    /* Waiting kernels write these three; CUDA: after some 0.2 ms, then at most every 0.1 ms. */
    uint64_t wait_id;    /* alg_call_t.id, or its low bits */
    uint64_t wait_epoch; /* the word at ALG_EPOCH_OFFSET */
    uint64_t wait_beat;
    uint64_t reserved_too[3];
    uint64_t stop_at[ALG_MAX_RANKS]; /* [r]: address of this rank's word at ALG_STOP_OFFSET in peer r's scratch, or 0 */
    uint64_t stop_here;              /* address of the peers' words in this rank's scratch */
} alg_control_t;

typedef enum alg_status {
    ALG_STATUS_OK = 0,
    ALG_STATUS_TIMEOUT = 1,
    ALG_STATUS_PEER_DEAD = 2, /* CPU device: an awaited peer is gone */
    ALG_STATUS_ABORTED = 3,   /* launch_cpu: the host raised `abort`, or a thread did not start */
    ALG_STATUS_PEER_LEFT = 4  /* a peer gave up, or its connection ended */
} alg_status_t;

/* Packs alg_team_t.limit: the longest wait in ms, rounded up, above the call id's low ALG_LIMIT_BITS. Without a longest
 * wait: ALG_LIMIT_NONE and 63 bits of the id. 0: neither. */
enum { ALG_LIMIT_BITS = 35 };
#define ALG_LIMIT_NONE (UINT64_C(1) << 63)
static inline uint64_t alg_limit(uint64_t timeout_ns, uint64_t id)
{
    const uint64_t most_ms = (UINT64_C(1) << (63 - ALG_LIMIT_BITS)) - 1, ms = (timeout_ns + 999999) / 1000000;
    if (timeout_ns == 0)
        return ALG_LIMIT_NONE | id;
    return (ms < most_ms ? ms : most_ms) << ALG_LIMIT_BITS | (id & ((UINT64_C(1) << ALG_LIMIT_BITS) - 1));
}

/* Passed to kernels by value, with addresses of this process or CUDA device. */
typedef struct alg_team {
    uint32_t rank;
    uint32_t nranks;
    uint8_t *scratch[ALG_MAX_RANKS];
    uint8_t *own; /* control page, in device memory; scratch[rank] unless ALG_MEMORY_PINNED */
    uint8_t *own_counts;
    alg_control_t *control;
    uint64_t limit;
    uint32_t dependent_launch;
    int32_t priority; /* CUDA: priority of launches, as in cudaStreamCreateWithPriority; 0: none */
    uint64_t half_offset;
    uint64_t half_bytes;
    uint64_t places_offset;
    uint64_t places_bytes;
    uint64_t rings_offset;
    uint64_t rings_bytes;
    uint64_t flags_offset;
    uint64_t counts_offset;
    uint64_t staging_offset;
    uint64_t staging_bytes;
    /* Several nodes have equally many ranks. The team has this node's ranks; the relay connects ranks of equal
     * number. */
    uint32_t node;
    uint32_t nodes;          /* 0: one node */
    uint8_t *relay;          /* nodes/relay.h */
    struct alg_nodes *every; /* CPU device: the network of all nodes' ranks (nodes/network.cc) */
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
    ALG_SEND_RECV = 8,
    ALG_COLLECTIVE_COUNT = 9
} alg_collective_t;

/* "allreduce" and so on; NULL: invalid. */
const char *alg_collective_name(alg_collective_t collective);
/* ALG_COLLECTIVE_COUNT: unknown. */
alg_collective_t alg_collective_find(const char *name);
bool alg_collective_reduces(alg_collective_t collective);
bool alg_collective_rooted(alg_collective_t collective);
/* Blocks of `count` elements in a rank's larger buffer: nranks, or 1. Tables and limits mean that buffer's bytes. */
uint32_t alg_collective_blocks(alg_collective_t collective, uint32_t nranks);

/* Any alignment, never empty. A send does not write the buffer. */
typedef struct alg_message {
    void *buffer;
    uint64_t bytes;
    uint32_t peer; /* may be this rank */
    bool send;
    bool bulk; /* carried by bulk copies; equal at both ends */
} alg_message_t;

enum { ALG_MOST_PARTS = 64 };
/* A row: what a warp moves at once. */
enum { ALG_ROW_BYTES = 512 };
typedef struct alg_part {
    uint32_t root;
    const void *input;
    void *output;
    uint64_t count;
} alg_part_t;

typedef struct alg_call {
    alg_collective_t collective;
    uint64_t id; /* 63 bits. Waiting kernels report it from alg_team_t.limit, which the caller sets */
    /* For collectives. `count` is NCCL's: elements of a block where ranks have blocks, else of the buffer. Buffers are
     * aligned to the type, disjoint or in place as in NCCL, and untouched on ranks that do not need them. */
    uint32_t root;
    const void *input;
    void *output;
    uint64_t count;
    alg_type_t type;
    alg_op_t op;
    const void *scalar_pointer; /* ALG_PREMUL_SUM: the scalar in device memory, or NULL */
    uint64_t scalar_bits;       /* if scalar_pointer is NULL: the scalar, in the low bytes */
    /* Up to ALG_MOST_PARTS calls, each with its own root, buffers and count. They run side by side as if in sequence:
     * other ranks may make them one by one. No part is empty or longer than part_bytes; roots rise. The list may be
     * freed after the launch. */
    uint32_t part_count;
    const alg_part_t *parts;
    /* For ALG_SEND_RECV. Messages progress side by side; those from one rank to another arrive in list order, over all
     * launches. A rank's sends and receives to itself match in number, bytes and order. The launch copies the list. */
    uint32_t message_count;
    const alg_message_t *messages;
    /* The grid; the CPU device uses `blocks` alone. A collective has its table row's grid, lowered by `shape`; ranks'
     * grids differ only with `parts` or unaligned_blocks. For messages it is an upper limit. shim_share_grant sets the
     * last three fields, and may change the grid if any_grid. */
    uint32_t blocks;
    uint32_t aligned_blocks; /* `blocks` before unaligned_blocks raised it, so independent of alignment */
    uint32_t threads;        /* of a block; a multiple of 32 */
    uint32_t most_blocks;    /* most that this rank's share of its GPU allows; 0: no limit */
    uint32_t sure_blocks;    /* blocks that surely fit on the GPU (spare_blocks); 0: all */
    uint32_t early;          /* the stream's next kernel may start beside this one */
} alg_call_t;

/* Data of the busiest GPU: the larger buffer to every other rank; nearly twice; a block of it, without padding, to
 * every other rank; once, since other ranks forward it. */
typedef enum alg_load { ALG_LOAD_TO_EACH, ALG_LOAD_TWICE, ALG_LOAD_BLOCKS, ALG_LOAD_WHOLE } alg_load_t;

/* For machines that were not measured (selector/cost.c). Except for all-reduce, the similar all-reduce algorithm's. */
typedef struct alg_cost {
    alg_load_t load;
    double more_us; /* above the time of an empty kernel */
    double part;    /* of the link's rate; 0: not predicted */
    int crossings;  /* of the link, one after the other */
} alg_cost_t;

typedef struct alg_algorithm {
    const char *name;
    alg_collective_t collective;
    /* Most bytes of a call's larger buffer, or of a message; UINT64_MAX: any. Pure. */
    uint64_t (*max_bytes)(const alg_map_t *map, uint32_t nranks, alg_type_t type);
    /* Lowers a row's blocks and threads to what `bytes` can use. Pure. */
    void (*shape)(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads);
    /* Enqueues the kernels on a cudaStream_t of the current device, without allocation; legal in capture. Returns a
     * cudaError_t. NULL without CUDA. */
    int (*launch_cuda)(const alg_team_t *team, const alg_call_t *call, void *stream);
    /* Runs the call to its end: block 0 in this thread, each other block in its own. Returns an alg_status_t; unless
     * OK, the output is undefined. */
    int (*launch_cpu)(const alg_team_t *team, const alg_call_t *call);
    /* Loads the kernels for `nranks`: a load at launch would wait for another rank's waiting kernel. Returns a
     * cudaError_t. NULL without CUDA. */
    int (*preload_cuda)(uint32_t nranks);
    alg_memory_t memory;
    /* Most bytes of a part, whatever the call's count. NULL: calls have no parts. Pure. */
    uint64_t (*part_bytes)(const alg_team_t *team, const alg_call_t *call);
    /* Least blocks of calls with unaligned buffers or ALG_PREMUL_SUM, which slow each block; 0: no minimum. */
    uint32_t unaligned_blocks;
    /* Ranks may choose different grids. */
    bool any_grid;
    /* Blocks beyond sure_blocks leave if a rank has not begun the call. */
    bool spare_blocks;
    /* Bulk copies carry `bulk` messages, rings the others. */
    bool bulk_messages;
    /* A block's share of a multiprocessor, which has ALG_ROOM: a power of two. Blocks fit while the sum of their shares
     * does, since the compiler limits registers. Pure. */
    uint32_t (*block_room)(uint32_t nranks, uint32_t threads);
    uint32_t piece; /* the piece that its calls need, except short ones (alg_piece_of) */
    alg_cost_t cost;
} alg_algorithm_t;

/* Lanes of 64 registers that a multiprocessor holds (CUDA C++ Programming Guide, compute capability 8.0 to 10.0). */
enum { ALG_ROOM = 1024 };

/* Whether all blocks of both buffers are aligned to 16 bytes. Ranks may differ. */
static inline bool alg_call_is_aligned(const alg_call_t *call)
{
    const uint64_t step = alg_collective_blocks(call->collective, 2) > 1 ? call->count * alg_type_bytes(call->type) : 0;
    return ((uintptr_t)call->input | (uintptr_t)call->output | step) % 16 == 0;
}

/* The piece that a call of `bytes` needs beside the first; ALG_PIECE_FIRST: none. Pure, so ranks agree. */
static inline uint32_t alg_piece_of(const alg_map_t *map, const alg_algorithm_t *algorithm, uint64_t bytes)
{
    if (map->pieces == 1)
        return ALG_PIECE_FIRST;
    const bool first = algorithm->piece == ALG_PIECE_HALVES  ? bytes <= map->short_most
                       : algorithm->piece == ALG_PIECE_RINGS ? map->rings_first
                                                             : false;
    return first ? (uint32_t)ALG_PIECE_FIRST : algorithm->piece;
}

/* Bytes of the larger buffer; parts: of the first part's; messages: 0. */
static inline uint64_t alg_call_bytes(const alg_call_t *call, uint32_t nranks)
{
    if (call->collective == ALG_SEND_RECV)
        return 0;
    const uint64_t count = call->part_count > 0 ? call->parts[0].count : call->count;
    return count * alg_type_bytes(call->type) * alg_collective_blocks(call->collective, nranks);
}

extern const alg_algorithm_t *const alg_registry[];
extern const uint32_t alg_registry_count;
/* The CPU device's algorithms between nodes, by collective, except all-reduce (nodes/network.cc). No table or policy
 * has them. */
extern const alg_algorithm_t alg_network[];
/* NULL: unknown name. */
const alg_algorithm_t *alg_find(alg_collective_t collective, const char *name);

#ifdef __cplusplus
}
#endif
#endif
