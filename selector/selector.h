/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selector.h - which algorithm serves a call: a pure function of facts that
 * are the same on every rank.
 *
 * The folder's main header; neighbours also include topology/topology.h and table_file.h. Nothing here touches CUDA,
 * the environment or a lock. Rows of the built-in table name the benchmark that set them.
 */
#ifndef SHUNT_SELECTOR_H
#define SHUNT_SELECTOR_H

#include "selector/topology/links.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Rows of a table ------------------------------------------------------------ */

/* A row belongs to one collective. Times differ between types: floats travel with a sentinel, integers with escape
 * words, and the width decides how much arithmetic a byte costs. So a row names a set of kinds of types, one bit each.
 * Capture is not a key: NCCL allows one rank to capture a call that another makes eagerly. */
enum { SEL_KINDS = 8, SEL_ANY_KIND = (1 << SEL_KINDS) - 1 };

/* f1 f2 f4 f8 i1 i2 i4 i8: floats, then integers, by bytes. */
uint32_t sel_kind(alg_type_t type);

/* The size of a call, here and elsewhere, is that of a rank's larger buffer: count times the type's size times
 * alg_collective_blocks. */
enum {
    SEL_POLICY_BYTES = 256,
    SEL_TUNED_ROWS = 96,      /* of a tuned table for one number of ranks; more are left out */
    SEL_MEASURED_CLASSES = 4, /* of one number of ranks; more are forgotten, and measured again */
    SEL_MOST_BLOCKS = 1024,
    SEL_MOST_THREADS = 1024, /* what the kernels are built for */
    SEL_NCCL = UINT8_MAX     /* instead of an algorithm: the real NCCL */
};

/* A row of a tuned table. */
typedef struct sel_tuned_row {
    uint64_t from_bytes, to_bytes; /* both inclusive */
    uint32_t class_hash;           /* sel_class_hash of the class it was measured on */
    uint16_t blocks, threads;      /* at most, as in sel_rule_t */
    uint8_t collective;            /* an alg_collective_t */
    uint8_t kinds;
    uint8_t algorithm; /* index in alg_registry, or SEL_NCCL */
    uint8_t unused[5];
} sel_tuned_row_t;

/* The tuned table's rows for this number of ranks, and its machine's links. */
typedef struct sel_tuned {
    uint64_t machine; /* fingerprint of the one it was measured on */
    uint32_t forced;  /* use it on any machine */
    uint32_t rows;
    uint32_t measured[SEL_MEASURED_CLASSES]; /* sel_class_hash of each class that it says was measured; 0: no more */
    uint32_t old;                            /* bit i: measured[i], last with another NCCL than this one */
    uint32_t known;                          /* bit i: measured[i], once with this NCCL */
    sel_measured_t link;
    sel_host_measured_t host;
    sel_tuned_row_t row[SEL_TUNED_ROWS]; /* later ones win */
} sel_tuned_t;

uint32_t sel_class_hash(const char *name);

/* Settings that all ranks share. Plain data without padding: it travels in an attach record and is compared whole. */
typedef struct sel_settings {
    uint64_t scratch_bytes;        /* SHUNT_SCRATCH_BYTES */
    uint32_t max_blocks;           /* SHUNT_MAX_CTAS or NCCL_MAX_CTAS; 0: no cap */
    uint32_t deterministic;        /* SHUNT_DETERMINISTIC */
    char policy[SEL_POLICY_BYTES]; /* SHUNT_ALGO, NUL-terminated; "" for the table */
    sel_tuned_t tuned;             /* SHUNT_TABLE, or what the cache folder has for this machine */
} sel_settings_t;

typedef enum sel_reason {
    SEL_TAKEN = 0,
    SEL_FORWARD_TABLE,      /* the table says that the real NCCL is faster */
    SEL_FORWARD_POLICY,     /* the user's policy says nccl */
    SEL_FORWARD_TOO_LARGE,  /* more than the scratch allows */
    SEL_FORWARD_TYPE,       /* no kernel for this type or operator here */
    SEL_FORWARD_UNATTACHED, /* the communicator is not attached */
    SEL_FORWARD_COLLECTIVE, /* a collective that Shunt has no algorithm for */
    SEL_REASON_COUNT
} sel_reason_t;

/* How to serve a message. algorithm NULL: by the real NCCL. */
typedef struct sel_rule {
    const alg_algorithm_t *algorithm;
    uint16_t blocks;  /* at most; the algorithm's shape lowers them for short messages */
    uint16_t threads; /* of a block, likewise */
    sel_reason_t reason;
    const char *source; /* the benchmark or other source that set it; static */
} sel_rule_t;

enum { SEL_BANDS = 1152, SEL_RULES = 544 };

/* A range of sizes of one collective with the same rules. */
typedef struct sel_band {
    uint64_t from_bytes;         /* up to the next one's */
    uint16_t rule_of[SEL_KINDS]; /* by kind of type: an index of sel_plan_t.rule */
} sel_band_t;

/* All choices of one communicator, made once at attach. */
typedef struct sel_plan {
    sel_topology_t topology;
    sel_settings_t settings;
    alg_map_t map;
    bool own_only;        /* never forward if an algorithm can serve: host device, SHUNT_DETERMINISTIC */
    uint32_t collectives; /* bit c: there is an algorithm of this collective */
    uint64_t excluded;    /* bit i: alg_registry[i] is never to be used */
    uint32_t bands;
    uint32_t bands_end[ALG_COLLECTIVE_COUNT]; /* end of each collective's bands; they follow those of the collective
                                                 before */
    sel_band_t band[SEL_BANDS];               /* of one collective: growing, from 0 */
    uint32_t rules;
    sel_rule_t rule[SEL_RULES];
} sel_plan_t;

/* Neighbouring bands with one rule, for showing. Bytes as above. */
typedef struct sel_row {
    uint64_t from_bytes, to_bytes; /* both inclusive */
    sel_rule_t rule;
} sel_row_t;

typedef struct sel_choice {
    const alg_algorithm_t *algorithm; /* NULL: the real NCCL */
    uint32_t blocks;
    uint32_t aligned_blocks; /* without those of the algorithm's unaligned_blocks */
    uint32_t threads;
    sel_reason_t reason;
    const char *source; /* the rule's, static; NULL: no rule was used */
} sel_choice_t;

typedef struct sel_query {
    alg_collective_t collective;
    alg_type_t type;
    alg_op_t op;
    uint64_t count; /* as in alg_call_t */
    bool slow;      /* blocks take this rank longer: buffers for which alg_call_is_aligned is false, or a message to the
                       rank itself. The number of blocks alone depends on it. */
} sel_query_t;

/* Check a policy ("allreduce:0-64K=oneshot;64K-2M=twoshot:64x512;2M-=nccl;allgather:nccl", "^name", "nccl", "builtin",
 * an algorithm's name alone, or ""). On a fault returns false and writes one line (position, what was expected). */
bool sel_policy_check(const char *policy, char *fault, size_t fault_bytes);
/* Fill a plan. Settings have been checked; the same input gives the same plan on every rank. */
void sel_plan_init(sel_plan_t *plan, const sel_topology_t *topology, const sel_settings_t *settings);
/* For a plan of ALG_MEMORY_PEER: whether the host's memory would serve this communicator better. Only over PCIe. */
bool sel_plan_prefers_host(const sel_plan_t *plan);
typedef enum sel_measurement {
    SEL_NOT_MEASURED,
    SEL_MEASURED_OTHER,   /* with another version of NCCL */
    SEL_MEASURED_EARLIER, /* with this one, and later with another */
    SEL_MEASURED
} sel_measurement_t;
/* Whether the tuned table has measured this class. */
sel_measurement_t sel_plan_measurement(const sel_plan_t *plan);
/* Whether the plan takes any call, or may be replaced by one that does: SHUNT_ALGO is set. */
bool sel_plan_serves(const sel_plan_t *plan);
/* Row `index` of a collective and kind of type, in order of size; false past the end. */
bool sel_plan_row(const sel_plan_t *plan, alg_collective_t collective, uint32_t kind, uint32_t index, sel_row_t *row);
/* A default grid, for an algorithm without a measured one; `algorithm` is NULL. */
sel_choice_t sel_usual_grid(const sel_topology_t *topology, uint64_t bytes);
/* The choice. Pure, no allocation, tens of ns. */
sel_choice_t sel_choose(const sel_plan_t *plan, const sel_query_t *query);
const char *sel_reason_text(sel_reason_t reason);

#ifdef __cplusplus
}
#endif
#endif
