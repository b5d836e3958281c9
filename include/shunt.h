/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shunt.h - what libnccl.so.2 offers beyond NCCL's API when it is Shunt.
 *
 * Link against libnccl.so, or look the functions up with dlsym: a program that links them needs Shunt; one that looks
 * them up runs with any NCCL. All functions are thread-safe and never wait for another rank; they make no CUDA call
 * unless stated.
 */
#ifndef SHUNT_H
#define SHUNT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The only definition of the version: CMake, the packages and the manual page are made from it. */
#define SHUNT_VERSION_MAJOR 0
#define SHUNT_VERSION_MINOR 1
#define SHUNT_VERSION_PATCH 0
#define SHUNT_VERSION_CODE (SHUNT_VERSION_MAJOR * 10000 + SHUNT_VERSION_MINOR * 100 + SHUNT_VERSION_PATCH)

/* SHUNT_VERSION_CODE of the loaded library. (ncclGetVersion returns the real NCCL's version.) */
int shunt_version(void);

/* 1: CPU device (buffers are host memory, no CUDA); 0: CUDA. */
int shunt_host_mode(void);

/* Absolute path of the real NCCL that calls are forwarded to; loads it if needed. NULL if there is none. */
const char *shunt_nccl_path(void);

/* The last collective that this thread issued. Strings are static. */
typedef struct shunt_decision {
    uint32_t size;          /* in: sizeof(shunt_decision_t); fields beyond it are not written */
    uint32_t taken;         /* 1: the call was served by Shunt's kernels; 0: forwarded */
    const char *collective; /* "allreduce", ...; for a message "send" or "recv"; "dispatch", "combine" */
    const char *algorithm;  /* "oneshot", ..., or "nccl" */
    const char *reason;     /* reason of the decision; never NULL */
    uint64_t bytes;         /* size of a rank's larger buffer */
    uint32_t blocks;        /* blocks of the launch; 0 when forwarded */
    uint32_t threads;
    const char *source; /* source of the rule: "policy", "tuned table", the file of a benchmark, ...; "": no rule */
} shunt_decision_t;
/* 0, or -1 if this thread has issued no collective yet or `decision` is NULL or its size is 0. */
int shunt_last_decision(shunt_decision_t *decision);

/* Process-wide counts since the library was loaded. */
typedef struct shunt_statistics {
    uint32_t size;                   /* in: sizeof(shunt_statistics_t); fields beyond it are not written */
    uint32_t communicators_attached; /* number of attached communicators that exist now */
    uint64_t calls_taken;
    uint64_t calls_forwarded;
    uint64_t bytes_taken;
    uint64_t bytes_forwarded;
} shunt_statistics_t;
/* 0, or -1 for NULL or size 0. */
int shunt_stats(shunt_statistics_t *statistics);

/* A setting, in the order of docs/settings.md; for `shunt info`. */
typedef struct shunt_setting {
    const char *name;    /* environment variable */
    const char *value;   /* the value in force, as text */
    const char *origin;  /* "default", "environment", or a file's path */
    const char *initial; /* the default, as text */
    const char *help;
} shunt_setting_t;
/* Row `index`; 0, or -1 past the end. Strings are valid until the process ends. */
int shunt_setting(uint32_t index, shunt_setting_t *setting);

/* ---- Machines and communicators ---------------------------------------------------------------------- */

/* The class and machine of a communicator: choices and measurements hold for both together. */
typedef struct shunt_communicator {
    uint32_t size;       /* in: sizeof(shunt_communicator_t); fields beyond it are not written */
    uint32_t ranks;      /* 0: the communicator is not attached, and the other fields are empty */
    uint64_t machine;    /* fingerprint of this kind of machine; CPU device: 0 */
    char class_name[32]; /* how the ranks are linked, such as "nvswitch-sm90-4" */
} shunt_communicator_t;

/* A machine as text: this one (file NULL), or the one in a file of NCCL's topology format. xml 0: human-readable; 1:
 * in that format. Writes as much as fits and returns the length of the whole text; -1 for a fault, with one line in
 * `text` that names file, line and column. For this machine it queries NVML, /sys and, unless in CPU mode, CUDA,
 * and may start them. */
int shunt_topology(const char *file, int xml, char *text, size_t capacity);
/* The class of a communicator over all GPUs of the machine (of this machine: the GPUs that this process may use). With
 * fewer than two GPUs, ranks is 0. Returns 0; -1 if the file is faulty or `facts` is NULL or its size is 0. */
int shunt_topology_class(const char *file, shunt_communicator_t *facts);

/* Row `index` of a communicator's decision table for bf16 and a collective ("allreduce", "reducescatter", "reduce",
 * "allgather", "alltoall", "broadcast", "gather", "scatter", "sendrecv"): one line of text, cut to `capacity`. 0, or -1
 * past the end, for an invalid class or an unknown collective. */
int shunt_table_row(const shunt_communicator_t *facts, const char *collective, uint32_t index, char *text,
                    size_t capacity);

/* ---- For measurements: used by `shunt tune` ------------------------------------------ */

struct ncclComm; /* ncclComm_t is a pointer to it */
/* Describe a communicator. 0, or -1 if Shunt does not know it or `facts` is NULL or its size is 0. */
int shunt_communicator(struct ncclComm *comm, shunt_communicator_t *facts);

/* The name of a collective's algorithm `index`, as in SHUNT_ALGO; NULL past the end. A policy has no effect on a
 * communicator whose links do not suit the algorithm. */
const char *shunt_algorithm(const char *collective, uint32_t index);

/* The decision that a call with this count (as passed to NCCL's entry point) and `type` (an ncclDataType_t) would get.
 * Fills `decision`, whose size is set. 0, or -1 if the communicator is not attached or there is no such type or
 * collective. */
int shunt_choose(struct ncclComm *comm, const char *collective, uint64_t count, int type, shunt_decision_t *decision);

/* Replace the communicator's policy by `policy` (as in SHUNT_ALGO), from the next call on. Every rank must do so
 * between the same two calls, while no other thread uses the communicator. Captured graphs do not change. 0, or -1
 * if it is not attached or the policy is malformed. */
int shunt_set_policy(struct ncclComm *comm, const char *policy);

/* The path of a machine's tuned table, whether or not the file exists. 0, or -1 if the path does not fit or there is
 * no folder (no SHUNT_CACHE_DIR, XDG_CACHE_HOME or HOME). */
int shunt_table_path(uint64_t machine, char *path, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
