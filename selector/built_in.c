/* SPDX-License-Identifier: Apache-2.0 */
/* built_in.c - the built-in table. Each row names the benchmark that set it. NCCL gets the sizes at which its ring, on
 * more multiprocessors, is faster than Shunt's 64 blocks. */
#include "selector/built_in.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

/* H200 over NVSwitch, multicast off. Grids: selector/measured/sweep-h200.csv. */
#define H200(ranks) "selector/measured/graph-" #ranks "-h200.csv"
#define CPU "CPU device" /* a block is a thread; more threads only contend for cores */

#define COLLECTIVES(ranks) "selector/measured/collectives-" #ranks "-h200.csv"

/* Rows of three and four ranks have as few blocks as suffice. Long calls use bulk copies, except all-reduces, for which
 * NCCL's ring is faster, and calls with a root. Calls with a root use push while short (it loads the root's link n-1
 * times), then two-shot until NCCL is faster, alone or in a group (selector/measured/roots-34-h200.csv). Two-shot
 * all-reduces that do not fit a half (of four ranks: 12 MB of floats) go in segments. */
#define SWEEP(ranks) "selector/measured/sweep-" #ranks "-h200.csv"
#define ROW(collective, ranks, most, name, blocks, threads)                                  \
    {                                                                                        \
        ALG_##collective, "nvswitch-sm90-" #ranks, most, name, blocks, threads, SWEEP(ranks) \
    }
#define FORWARD(collective, ranks)                                                              \
    {                                                                                           \
        ALG_##collective, "nvswitch-sm90-" #ranks, UINT64_MAX, "nccl", 0, 0, COLLECTIVES(ranks) \
    }
#define ON_CPU(collective)                                      \
    {                                                           \
        ALG_##collective, "host", UINT64_MAX, "push", 1, 1, CPU \
    }

/* Rows of two ranks: many small blocks are as fast as few large ones, which hold twice the registers. Few blocks are
 * better beside matrix products, so each size has the fewest blocks that cost at most 3% alone (reduce-scatters of 12
 * MB and all-to-alls of 16 MB: 3 to 6%). From about 20 MB on, 40 and 48 blocks are better there, too. */
#define GRIDS "selector/measured/grids-2-h100.csv"
#define SLIM "selector/measured/slim-2-h100.csv"
#define SLIM_H200 "selector/measured/slim-2-h200.csv"
#define FEW "selector/measured/few-blocks-2-h100.csv"
#define SHORT_TWO(collective)                                                      \
    {                                                                              \
        collective, "nvswitch-sm90-2", 256 * KIB, "push", 32, 1024, COLLECTIVES(2) \
    }
/* Longer calls use bulk copies: as fast as the link, with a third of the blocks. */
#define BULK "selector/measured/bulk-2-h100.csv"

/* Two GPUs through pinned memory: one crossing up to `once`, chunks up to `most`. Short calls need few blocks. */
#define SHM "selector/measured/shm-collectives-2-h200.csv"
#define SHM_SWEEP "selector/measured/shm-sweep-2-h200.csv"
#define SHM_ONCE(collective, few, once)                                     \
    {collective, "shm-2", 64 * KIB, "shm-oneshot", few, 512, SHM_SWEEP},    \
        {collective, "shm-2", 256 * KIB, "shm-oneshot", 8, 512, SHM_SWEEP}, \
    {                                                                       \
        collective, "shm-2", once, "shm-oneshot", 16, 512, SHM              \
    }
#define SHM_END(collective)                                \
    {                                                      \
        collective, "shm-2", UINT64_MAX, "nccl", 0, 0, SHM \
    }
#define SHM_ROWS(collective, few, once, most) \
    SHM_ONCE(collective, few, once), {collective, "shm-2", most, "shm-staged", 32, 256, SHM}, SHM_END(collective)

/* Calls with a root, on two ranks. NCCL can run a group's long broadcasts or reduces in one kernel, Shunt cannot. */
#define PUSH_TWO(collective, most)                                                    \
    {ALG_##collective, "nvswitch-sm90-2", 1 * MIB, "push", 32, 1024, COLLECTIVES(2)}, \
    {                                                                                 \
        ALG_##collective, "nvswitch-sm90-2", most, "push", 64, 1024, COLLECTIVES(2)   \
    }

/* From 128 KiB on, both directions of a link need 64 blocks. On 3 and 4 ranks, NCCL's longer messages are faster if a
 * rank has several. */
#define SENDRECV "selector/measured/sendrecv-2-h200.csv"
#define MESSAGES "selector/measured/messages-2-h100.csv"

const sel_built_in_t sel_built_in[] = {
    {ALG_ALL_REDUCE, "host", 64 * KIB, "oneshot", 1, 1, CPU},
    {ALG_ALL_REDUCE, "host", 1 * MIB, "twoshot", 1, 1, CPU},
    {ALG_ALL_REDUCE, "host", UINT64_MAX, "staged", 1, 1, CPU},
    {ALG_ALL_REDUCE, "nvswitch-sm90-2", 128 * KIB, "oneshot", 32, 1024, H200(2)},
    {ALG_ALL_REDUCE, "nvswitch-sm90-2", 512 * KIB, "oneshot", 64, 512, SLIM},
    {ALG_ALL_REDUCE, "nvswitch-sm90-2", 1536 * KIB, "twoshot", 128, 128, SLIM},
    {ALG_ALL_REDUCE, "nvswitch-sm90-2", 18 * MIB, "twoshot", 128, 256, SLIM},
    {ALG_ALL_REDUCE, "nvswitch-sm90-2", UINT64_MAX, "bulk", 20, 800, BULK},
    ROW(ALL_REDUCE, 3, 256 * KIB, "oneshot", 32, 1024),
    ROW(ALL_REDUCE, 3, 3 * MIB, "twoshot", 64, 512),
    ROW(ALL_REDUCE, 3, 14 * MIB, "twoshot", 128, 256),
    ROW(ALL_REDUCE, 3, 48 * MIB, "staged", 64, 512),
    FORWARD(ALL_REDUCE, 3),
    ROW(ALL_REDUCE, 4, 160 * KIB, "oneshot", 32, 1024),
    ROW(ALL_REDUCE, 4, 3 * MIB, "twoshot", 64, 512),
    ROW(ALL_REDUCE, 4, 24 * MIB, "twoshot", 128, 256),
    FORWARD(ALL_REDUCE, 4),

    {ALG_ALL_REDUCE, "shm-2", 16 * KIB, "shm-oneshot", 4, 512, SHM_SWEEP},
    {ALG_ALL_REDUCE, "shm-2", 512 * KIB, "shm-oneshot", 8, 512, SHM_SWEEP},
    {ALG_ALL_REDUCE, "shm-2", 64 * MIB, "shm-staged", 32, 256, SHM},
    SHM_END(ALG_ALL_REDUCE),
    SHM_ROWS(ALG_REDUCE_SCATTER, 2, 512 * KIB, 64 * MIB),
    SHM_ROWS(ALG_ALL_GATHER, 2, 1 * MIB, 64 * MIB),
    SHM_ROWS(ALG_ALL_TO_ALL, 2, 512 * KIB, 64 * MIB),
    SHM_ROWS(ALG_GATHER, 2, 512 * KIB, 1 * MIB),
    SHM_ROWS(ALG_SCATTER, 2, 512 * KIB, 1 * MIB),
    SHM_ONCE(ALG_BROADCAST, 8, 512 * KIB),
    SHM_END(ALG_BROADCAST),
    SHM_ONCE(ALG_REDUCE, 8, 512 * KIB),
    SHM_END(ALG_REDUCE),
    {ALG_SEND_RECV, "shm-2", 128 * KIB, "shm-pairs", 32, 512, SHM},
    SHM_END(ALG_SEND_RECV),

    {ALG_ALL_REDUCE, "network-2x1", 32 * KIB, "exchange", 4, 256, "selector/measured/hosts-2-h200.csv"},
    {ALG_ALL_REDUCE, "network-2x1", 1 * MIB, "exchange", 2, 512, "selector/measured/hosts-steps-2-h200.csv"},
    {ALG_ALL_REDUCE, "network-2x1", UINT64_MAX, "nccl", 0, 0, "selector/measured/hosts-steps-2-h200.csv"},
    {ALG_ALL_REDUCE, "network-2x2", 1 * MIB, "exchange", 16, 512, "selector/measured/hosts-2x2-h200.csv"},
    {ALG_ALL_REDUCE, "network-2x2", UINT64_MAX, "nccl", 0, 0, "selector/measured/hosts-2x2-h200.csv"},

    SHORT_TWO(ALG_REDUCE_SCATTER),
    {ALG_REDUCE_SCATTER, "nvswitch-sm90-2", 1 * MIB, "push", 64, 512, SLIM},
    {ALG_REDUCE_SCATTER, "nvswitch-sm90-2", 2560 * KIB, "push", 64, 1024, GRIDS},
    {ALG_REDUCE_SCATTER, "nvswitch-sm90-2", 6 * MIB, "push", 128, 256, SLIM},
    {ALG_REDUCE_SCATTER, "nvswitch-sm90-2", 12 * MIB, "push", 32, 512, FEW},
    {ALG_REDUCE_SCATTER, "nvswitch-sm90-2", 18 * MIB, "push", 64, 512, FEW},
    {ALG_REDUCE_SCATTER, "nvswitch-sm90-2", 21 * MIB, "push", 40, 512, FEW},
    {ALG_REDUCE_SCATTER, "nvswitch-sm90-2", 40 * MIB, "push", 48, 512, FEW},
    {ALG_REDUCE_SCATTER, "nvswitch-sm90-2", UINT64_MAX, "bulk", 20, 800, BULK},
    ON_CPU(REDUCE_SCATTER),
    ROW(REDUCE_SCATTER, 3, 512 * KIB, "push", 32, 1024),
    ROW(REDUCE_SCATTER, 3, 96 * MIB, "push", 64, 512),
    ROW(REDUCE_SCATTER, 3, UINT64_MAX, "bulk", 24, 800),
    ROW(REDUCE_SCATTER, 4, 512 * KIB, "push", 32, 1024),
    ROW(REDUCE_SCATTER, 4, 40 * MIB, "push", 64, 512),
    ROW(REDUCE_SCATTER, 4, UINT64_MAX, "bulk", 24, 800),
    SHORT_TWO(ALG_ALL_GATHER),
    {ALG_ALL_GATHER, "nvswitch-sm90-2", 1 * MIB, "push", 64, 256, SLIM},
    {ALG_ALL_GATHER, "nvswitch-sm90-2", 20 * MIB, "push", 48, 256, SLIM_H200},
    {ALG_ALL_GATHER, "nvswitch-sm90-2", 40 * MIB, "push", 64, 512, FEW},
    {ALG_ALL_GATHER, "nvswitch-sm90-2", UINT64_MAX, "bulk", 22, 544, BULK},
    ON_CPU(ALL_GATHER),
    ROW(ALL_GATHER, 3, 512 * KIB, "push", 32, 1024),
    ROW(ALL_GATHER, 3, 32 * MIB, "push", 64, 512),
    ROW(ALL_GATHER, 3, UINT64_MAX, "bulk", 20, 544),
    ROW(ALL_GATHER, 4, 512 * KIB, "push", 32, 1024),
    ROW(ALL_GATHER, 4, 48 * MIB, "push", 64, 512),
    ROW(ALL_GATHER, 4, UINT64_MAX, "bulk", 16, 544),
    SHORT_TWO(ALG_ALL_TO_ALL),
    {ALG_ALL_TO_ALL, "nvswitch-sm90-2", 1 * MIB, "push", 64, 256, SLIM},
    {ALG_ALL_TO_ALL, "nvswitch-sm90-2", 9 * MIB, "push", 48, 256, SLIM_H200},
    {ALG_ALL_TO_ALL, "nvswitch-sm90-2", 16 * MIB, "push", 32, 512, FEW},
    {ALG_ALL_TO_ALL, "nvswitch-sm90-2", 18 * MIB, "push", 64, 512, FEW},
    {ALG_ALL_TO_ALL, "nvswitch-sm90-2", 40 * MIB, "push", 40, 512, FEW},
    {ALG_ALL_TO_ALL, "nvswitch-sm90-2", UINT64_MAX, "bulk", 26, 544, BULK},
    ON_CPU(ALL_TO_ALL),
    ROW(ALL_TO_ALL, 3, 512 * KIB, "push", 32, 1024),
    ROW(ALL_TO_ALL, 3, 32 * MIB, "push", 64, 512),
    ROW(ALL_TO_ALL, 3, UINT64_MAX, "bulk", 24, 544),
    ROW(ALL_TO_ALL, 4, 512 * KIB, "push", 32, 1024),
    ROW(ALL_TO_ALL, 4, 32 * MIB, "push", 64, 512),
    ROW(ALL_TO_ALL, 4, UINT64_MAX, "bulk", 20, 544),
    ON_CPU(GATHER),
    PUSH_TWO(GATHER, 128 * MIB),
    FORWARD(GATHER, 2),
    ROW(GATHER, 3, 512 * KIB, "push", 32, 1024),
    ROW(GATHER, 3, 128 * MIB, "push", 64, 512),
    FORWARD(GATHER, 3),
    ROW(GATHER, 4, 512 * KIB, "push", 32, 1024),
    ROW(GATHER, 4, 48 * MIB, "push", 64, 512),
    FORWARD(GATHER, 4),
    ON_CPU(SCATTER),
    PUSH_TWO(SCATTER, 128 * MIB),
    FORWARD(SCATTER, 2),
    ROW(SCATTER, 3, 512 * KIB, "push", 32, 1024),
    ROW(SCATTER, 3, 128 * MIB, "push", 64, 512),
    FORWARD(SCATTER, 3),
    ROW(SCATTER, 4, 512 * KIB, "push", 32, 1024),
    ROW(SCATTER, 4, 48 * MIB, "push", 64, 512),
    FORWARD(SCATTER, 4),
    ON_CPU(BROADCAST),
    PUSH_TWO(BROADCAST, 24 * MIB),
    FORWARD(BROADCAST, 2),
    ROW(BROADCAST, 3, 512 * KIB, "push", 32, 1024),
    ROW(BROADCAST, 3, 2 * MIB, "push", 64, 512),
    ROW(BROADCAST, 3, 24 * MIB, "twoshot", 64, 512),
    FORWARD(BROADCAST, 3),
    ROW(BROADCAST, 4, 512 * KIB, "push", 32, 1024),
    ROW(BROADCAST, 4, 1 * MIB, "push", 64, 512),
    ROW(BROADCAST, 4, 8 * MIB, "twoshot", 64, 512),
    FORWARD(BROADCAST, 4),
    ON_CPU(REDUCE),
    PUSH_TWO(REDUCE, 24 * MIB),
    FORWARD(REDUCE, 2),
    ROW(REDUCE, 3, 512 * KIB, "push", 32, 1024),
    ROW(REDUCE, 3, 2 * MIB, "push", 64, 512),
    ROW(REDUCE, 3, 8 * MIB, "twoshot", 64, 512),
    FORWARD(REDUCE, 3),
    ROW(REDUCE, 4, 512 * KIB, "push", 32, 1024),
    ROW(REDUCE, 4, 1 * MIB, "push", 64, 512),
    ROW(REDUCE, 4, 5 * MIB, "twoshot", 64, 512),
    FORWARD(REDUCE, 4),
    {ALG_SEND_RECV, "host", 64 * KIB, "pairs", 1, 1, CPU},
    {ALG_SEND_RECV, "host", UINT64_MAX, "bulk", 2, 1, CPU},
    {ALG_SEND_RECV, "nvswitch-sm90-2", 64 * KIB, "pairs", 32, 512, SENDRECV},
    {ALG_SEND_RECV, "nvswitch-sm90-2", 48 * MIB, "pairs", 64, 512, MESSAGES},
    {ALG_SEND_RECV, "nvswitch-sm90-2", UINT64_MAX, "bulk", 20, 768, MESSAGES},
    ROW(SEND_RECV, 3, 64 * KIB, "pairs", 32, 512),
    ROW(SEND_RECV, 3, 24 * MIB, "pairs", 64, 512),
    FORWARD(SEND_RECV, 3),
    ROW(SEND_RECV, 4, 64 * KIB, "pairs", 32, 512),
    ROW(SEND_RECV, 4, 8 * MIB, "pairs", 64, 512),
    FORWARD(SEND_RECV, 4),
};
const uint32_t sel_built_in_count = sizeof sel_built_in / sizeof sel_built_in[0];
