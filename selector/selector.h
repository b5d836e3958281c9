/*
 * selector.h - which algorithm serves a call: a pure function of facts that
 * are the same on every rank.
 *
 * The one header of this room. Nothing here touches CUDA, the environment or
 * a lock. Rows of the built-in table name the benchmark that set them.
 */
#ifndef SHUNT_SELECTOR_H
#define SHUNT_SELECTOR_H

#include "algorithms/algorithm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the GPUs of a communicator reach each other; of several, the worst pair's. */
typedef enum sel_link {
    SEL_LINK_HOST = 0, /* host device: shared memory */
    SEL_LINK_NVSWITCH, /* every pair over NVLink and NVSwitch, with equal numbers of links */
    SEL_LINK_MESH,     /* every pair over NVLink of its own, with equal numbers of links */
    SEL_LINK_BRIDGES,  /* unequal: some pairs over NVLink, or over fewer links than others */
    SEL_LINK_PCIE,     /* PCIe switches alone between every pair */
    SEL_LINK_PHB,      /* a CPU's host bridge between some */
    SEL_LINK_SYS,      /* the link between CPU sockets between some */
    SEL_LINK_COUNT
} sel_link_t;

/* Facts of a communicator; the same on every rank after agreement. */
typedef struct sel_topology {
    sel_link_t link;
    uint32_t nranks;
    uint32_t arch;            /* the lowest compute capability, 10 * major + minor; 0 for host */
    uint32_t multiprocessors; /* the lowest of all ranks; host: 0 */
    bool multicast;           /* the real NCCL may use NVLink multicast on every rank */
    uint64_t fingerprint;     /* of this machine's kind: sel_fingerprint; host: 0 */
} sel_topology_t;

enum { SEL_POLICY_BYTES = 256, SEL_MAX_ROWS = 64 };

/* What the ranks agreed on. Plain data: it travels in an attach record. */
typedef struct sel_settings {
    uint64_t scratch_bytes;        /* SHUNT_SCRATCH_BYTES */
    uint32_t max_blocks;           /* SHUNT_MAX_CTAS or NCCL_MAX_CTAS; 0: no cap */
    uint32_t deterministic;        /* SHUNT_DETERMINISTIC */
    char policy[SEL_POLICY_BYTES]; /* SHUNT_ALGO, NUL-terminated; "" for the built-in table */
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

/* A row that applies to one communicator; rows of a plan are sorted by size, cover every size and do
 * not overlap within one capture state. algorithm NULL: the real NCCL. */
typedef struct sel_row {
    uint64_t from_bytes; /* inclusive */
    uint64_t to_bytes;   /* inclusive */
    const alg_algorithm_t *algorithm;
    uint16_t blocks;  /* at most; the algorithm's shape lowers them for short messages */
    uint16_t threads; /* of a block, likewise */
    sel_reason_t reason;
    const char *source; /* the benchmark that set the row, or "policy" */
} sel_row_t;

/* The part of the table that applies to one communicator, made once at attach. */
typedef struct sel_plan {
    sel_topology_t topology;
    sel_settings_t settings;
    alg_map_t map;
    bool own_only;       /* never forward what an algorithm here can do: host device, SHUNT_DETERMINISTIC */
    uint32_t excluded;   /* bit i: alg_registry[i] is never to be used */
    uint16_t own_blocks; /* where no row gives them */
    uint16_t own_threads;
    uint32_t rows[2]; /* [captured] */
    sel_row_t row[2][SEL_MAX_ROWS];
} sel_plan_t;

typedef struct sel_choice {
    const alg_algorithm_t *algorithm; /* NULL: the real NCCL */
    uint32_t blocks;
    uint32_t threads;
    sel_reason_t reason;
} sel_choice_t;

typedef struct sel_query {
    alg_collective_t collective;
    alg_type_t type;
    alg_op_t op;
    uint64_t count;
    bool captured;
} sel_query_t;

/* Check a policy ("allreduce:0-64K=oneshot;64K-2M=twoshot;2M-=nccl", "^name", "nccl", an algorithm's
 * name alone, or ""). On a fault returns false and writes one line (position, what was expected). */
bool sel_policy_check(const char *policy, char *fault, size_t fault_bytes);
/* Fill a plan. Settings have been checked; the same input gives the same plan on every rank. */
void sel_plan_init(sel_plan_t *plan, const sel_topology_t *topology, const sel_settings_t *settings);
/* The choice. Pure, no allocation, tens of ns. */
sel_choice_t sel_choose(const sel_plan_t *plan, const sel_query_t *query);
const char *sel_reason_text(sel_reason_t reason);
const char *sel_link_text(sel_link_t link);

#ifdef __cplusplus
}
#endif
#endif
