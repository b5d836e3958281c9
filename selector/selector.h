/* SPDX-License-Identifier: Apache-2.0 */
/* selector.h - selects a call's algorithm: a pure function of facts that are equal on all ranks, without CUDA,
 * environment or locks. */
#ifndef SHUNT_SELECTOR_H
#define SHUNT_SELECTOR_H

#include "selector/reasons.h"
#include "selector/topology/links.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A row applies to kinds of types, a bit each, since times differ: floats travel with a sentinel, integers with escape
 * words, and the width sets the arithmetic per byte. */
enum { SEL_KINDS = 8, SEL_ANY_KIND = (1 << SEL_KINDS) - 1 };

/* Kinds are f1 f2 f4 f8 i1 i2 i4 i8: floats, then integers, by bytes. */
uint32_t sel_kind(alg_type_t type);

/* In this folder a call's size is that of a rank's larger buffer: count * size of the type * alg_collective_blocks. */
enum {
    SEL_POLICY_BYTES = 256,
    SEL_TUNED_ROWS = 96,      /* per number of ranks; more are dropped */
    SEL_MEASURED_CLASSES = 4, /* per number of ranks; others may be measured again */
    SEL_MOST_BLOCKS = 1024,
    SEL_MOST_THREADS = 1024, /* limit of the kernels */
    SEL_NCCL = UINT8_MAX     /* instead of an algorithm */
};

typedef struct sel_tuned_row {
    uint64_t from_bytes, to_bytes; /* both inclusive */
    uint32_t class_hash;           /* of the class on which it was measured */
    uint16_t blocks, threads;      /* upper limits */
    uint8_t collective;
    uint8_t kinds;
    uint8_t algorithm; /* index in alg_registry, or SEL_NCCL */
    uint8_t unused[5];
} sel_tuned_row_t;

/* The tuned table for this number of ranks. */
typedef struct sel_tuned {
    uint64_t machine;
    uint32_t forced; /* use it on any machine */
    uint32_t rows;
    uint32_t measured[SEL_MEASURED_CLASSES]; /* sel_class_hash of each measured class; 0: no more */
    uint32_t old;                            /* bit i: measured[i] was last measured with another NCCL */
    uint32_t known;                          /* bit i: measured[i] was once measured with this NCCL */
    sel_measured_t link;
    sel_pinned_measured_t pinned;
    sel_tuned_row_t row[SEL_TUNED_ROWS]; /* later rows win */
} sel_tuned_t;

uint32_t sel_class_hash(const char *name);

/* Equal on all ranks. No padding: sent in an attach record and compared as bytes. */
typedef struct sel_settings {
    uint64_t scratch_bytes;
    uint32_t max_blocks; /* SHUNT_MAX_CTAS or NCCL_MAX_CTAS; 0: no cap */
    uint32_t deterministic;
    char policy[SEL_POLICY_BYTES]; /* SHUNT_ALGO; "" for the table */
    sel_tuned_t tuned;             /* SHUNT_TABLE, or the cache folder's */
} sel_settings_t;

/* `algorithm` NULL: the real NCCL. */
typedef struct sel_rule {
    const alg_algorithm_t *algorithm;
    uint16_t blocks; /* at most; `shape` may lower both */
    uint16_t threads;
    sel_reason_t reason;
    const char *source; /* the benchmark that set it; static */
} sel_rule_t;

enum { SEL_BANDS = 1152, SEL_RULES = 544 };

/* A range of sizes with the same rules. */
typedef struct sel_band {
    uint64_t from_bytes;         /* the band ends where the next begins */
    uint16_t rule_of[SEL_KINDS]; /* by kind of type: index of sel_plan_t.rule */
} sel_band_t;

/* All choices of a communicator, made at attach. */
typedef struct sel_plan {
    sel_topology_t topology;
    sel_settings_t settings;
    alg_map_t map;
    bool own_only;        /* never forward what an algorithm can serve: CPU device, SHUNT_DETERMINISTIC */
    uint32_t collectives; /* bit c: has an algorithm */
    uint64_t excluded;    /* bit i: never use alg_registry[i] */
    uint32_t bands;
    uint32_t bands_end[ALG_COLLECTIVE_COUNT]; /* [c]: end of c's bands in `band`; those of c + 1 follow */
    sel_band_t band[SEL_BANDS];               /* those of one collective ascend, from 0 bytes */
    uint32_t rules;
    sel_rule_t rule[SEL_RULES];
} sel_plan_t;

/* Neighbouring bands with the same rule. */
typedef struct sel_row {
    uint64_t from_bytes, to_bytes; /* both inclusive */
    sel_rule_t rule;
} sel_row_t;

typedef struct sel_choice {
    const alg_algorithm_t *algorithm; /* NULL: the real NCCL */
    uint32_t blocks;
    uint32_t aligned_blocks; /* `blocks` before the algorithm's unaligned_blocks raised it */
    uint32_t threads;
    sel_reason_t reason;
    const char *source; /* static; NULL: no rule was used */
} sel_choice_t;

typedef struct sel_query {
    alg_collective_t collective;
    alg_type_t type;
    alg_op_t op;
    uint64_t count; /* as in alg_call_t */
    bool slow;      /* unaligned buffers (alg_call_is_aligned), or a message to this rank; only affects blocks */
} sel_query_t;

/* Checks a policy (policy.h). False: a fault; `fault` has one line: position, and what was expected. */
bool sel_policy_check(const char *policy, char *fault, size_t fault_bytes);
/* Settings must be checked before. The same input gives the same plan on every rank. */
void sel_plan_init(sel_plan_t *plan, const sel_topology_t *topology, const sel_settings_t *settings);
/* For a plan of ALG_MEMORY_PEER: whether pinned memory is faster for the communicator; true only over PCIe. */
bool sel_plan_prefers_pinned(const sel_plan_t *plan);
typedef enum sel_measurement {
    SEL_NOT_MEASURED,
    SEL_MEASURED_OTHER,   /* measured with another NCCL */
    SEL_MEASURED_EARLIER, /* measured with this NCCL, later with another */
    SEL_MEASURED
} sel_measurement_t;
sel_measurement_t sel_plan_measurement(const sel_plan_t *plan);
/* Whether the plan takes any call, or SHUNT_ALGO is set. If not, the set-up declines. */
bool sel_plan_serves(const sel_plan_t *plan);
/* Gets row `index`, in order of size; false past the last. */
bool sel_plan_row(const sel_plan_t *plan, alg_collective_t collective, uint32_t kind, uint32_t index, sel_row_t *row);
/* The grid of an algorithm without a measured one; the result's `algorithm` is NULL. */
uint64_t sel_usual_few(alg_collective_t collective); /* size up to which the grid has few blocks */
sel_choice_t sel_usual_grid(const sel_topology_t *topology, alg_collective_t collective, uint64_t bytes);
/* Pure, no allocation, tens of ns. */
sel_choice_t sel_choose(const sel_plan_t *plan, const sel_query_t *query);

#ifdef __cplusplus
}
#endif
#endif
