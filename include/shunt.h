/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shunt.h - what libnccl.so.2 offers beyond NCCL's API when it is Shunt.
 *
 * Look the functions up with dlsym, or link against libnccl.so: a program that
 * links them needs Shunt; one that looks them up runs with any NCCL. All are
 * safe from any thread and never block for another rank; unless said, they make no
 * CUDA call.
 */
#ifndef SHUNT_H
#define SHUNT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The one place of the version: CMake, the packages and the manual page take it from here. */
#define SHUNT_VERSION_MAJOR 0
#define SHUNT_VERSION_MINOR 1
#define SHUNT_VERSION_PATCH 0
#define SHUNT_VERSION_CODE (SHUNT_VERSION_MAJOR * 10000 + SHUNT_VERSION_MINOR * 100 + SHUNT_VERSION_PATCH)

/* SHUNT_VERSION_CODE of the library that is loaded. (ncclGetVersion answers for the real NCCL.) */
int shunt_version(void);

/* 1: host device (buffers are host memory, no CUDA); 0: CUDA. */
int shunt_host_mode(void);

/* Absolute path of the real NCCL that calls are forwarded to, loading it if need be; NULL if none. */
const char *shunt_nccl_path(void);

/* The last collective that this thread issued. Strings are static. */
typedef struct shunt_decision {
    uint32_t size;          /* in: sizeof(shunt_decision_t); fields beyond it are not written */
    uint32_t taken;         /* 1: a kernel of Shunt's; 0: forwarded */
    const char *collective; /* "allreduce", ...; "send" or "recv" of a message */
    const char *algorithm;  /* "oneshot", ..., or "nccl" */
    const char *reason;     /* why; never NULL */
    uint64_t bytes;         /* of the larger buffer of a rank */
    uint32_t blocks;        /* of the launch; 0 when forwarded */
    uint32_t threads;
    const char *source; /* whose rule it was: "policy", "tuned table", the file of a benchmark, ...; "": no rule */
} shunt_decision_t;
/* 0, or -1 if this thread has issued no collective yet or `decision` is NULL or its size is 0. */
int shunt_last_decision(shunt_decision_t *decision);

/* Process-wide counts since the library was loaded. */
typedef struct shunt_statistics {
    uint32_t size;                   /* in: sizeof(shunt_statistics_t); fields beyond it are not written */
    uint32_t communicators_attached; /* alive now */
    uint64_t calls_taken;
    uint64_t calls_forwarded;
    uint64_t bytes_taken;
    uint64_t bytes_forwarded;
} shunt_statistics_t;
/* 0, or -1 for NULL or size 0. */
int shunt_stats(shunt_statistics_t *statistics);

/* One row a setting, in the order of docs/settings.md; for `shunt info`. */
typedef struct shunt_setting {
    const char *name;    /* environment variable */
    const char *value;   /* in force, as text */
    const char *origin;  /* "default", "environment", or a file's path */
    const char *initial; /* the default, as text */
    const char *help;
} shunt_setting_t;
/* Row `index`; 0, or -1 past the end. Strings live as long as the process. */
int shunt_setting(uint32_t index, shunt_setting_t *setting);

/* ---- Machines and communicators ---------------------------------------------------------------------- */

/* What the choice, and figures taken on a communicator, hold for. */
typedef struct shunt_communicator {
    uint32_t size;       /* in: sizeof(shunt_communicator_t); fields beyond it are not written */
    uint32_t ranks;      /* 0: it is not attached, and the rest is empty */
    uint64_t machine;    /* fingerprint of this kind of machine; host device: 0 */
    char class_name[32]; /* how the ranks are linked, such as "nvswitch-sm90-4" */
} shunt_communicator_t;

/* A machine in text: this one, or the one that a file in NCCL's topology format describes. xml 0: for people;
 * 1: in that format. Returns the length of the whole text, of which as much is written as fits; -1 for a
 * fault, which one line in `text` tells with file, line and column. For this machine (file NULL) NVML, /sys
 * and, unless in host mode, CUDA are asked, and may start. */
int shunt_topology(const char *file, int xml, char *text, size_t capacity);
/* What a communicator of its GPUs (here: those that this process may use) would be; of one GPU or none, ranks
 * is 0. Returns 0; -1 for a faulty file, NULL or size 0. */
int shunt_topology_class(const char *file, shunt_communicator_t *facts);

/* Row `index` of the decision table of a collective ("allreduce", "reducescatter", "reduce", "allgather", "alltoall",
 * "broadcast", "gather", "scatter", "sendrecv"), for bf16, of such a communicator: one line of text, cut to `capacity`.
 * 0, or -1 past the end, for a class that cannot be or for another name. */
int shunt_table_row(const shunt_communicator_t *facts, const char *collective, uint32_t index, char *text,
                    size_t capacity);

/* ---- For those who measure: what `shunt tune` is made with ------------------------------------------ */

struct ncclComm; /* ncclComm_t is a pointer to it */
/* 0, or -1 for a communicator that Shunt does not know, NULL or size 0. */
int shunt_communicator(struct ncclComm *comm, shunt_communicator_t *facts);

/* The name of algorithm `index` of a collective, as in SHUNT_ALGO; NULL past the end. A policy says nothing to a
 * communicator whose ranks reach each other in another way than the algorithm needs. */
const char *shunt_algorithm(const char *collective, uint32_t index);

/* What would be done with a call of a collective with this count (as NCCL's entry point takes it) and `type` (an
 * ncclDataType_t), without a call: fills `decision`, whose size is set. 0, or -1 if the communicator is not attached
 * or there is no such type or collective. */
int shunt_choose(struct ncclComm *comm, const char *collective, uint64_t count, int type, shunt_decision_t *decision);

/* Put `policy` (as in SHUNT_ALGO) in place of the communicator's, from the next call on. Every rank must do so
 * between the same two calls, and no other thread may be using the communicator. What a graph has captured
 * stays as it was. 0, or -1 if it is not attached or the policy is malformed. */
int shunt_set_policy(struct ncclComm *comm, const char *policy);

/* Where the tuned table of a machine lies, whether or not there is one: 0, or -1 if the path does not fit or
 * no folder can be named (no SHUNT_CACHE_DIR, XDG_CACHE_HOME or HOME). */
int shunt_table_path(uint64_t machine, char *path, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
