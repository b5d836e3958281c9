/* SPDX-License-Identifier: Apache-2.0 */
/* slice.h - for SHUNT_TRACE: a kernel of ours, and when it ran. */
#ifndef SHUNT_SHIM_SLICE_H
#define SHUNT_SHIM_SLICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A time in ns as arguments for "%llu.%03llu", in µs. */
#define SHIM_TRACE_US(ns) (unsigned long long)((ns) / 1000), (unsigned long long)((ns) % 1000)

/* Kernels of one communicator that may run beside those of another kind. */
typedef enum shim_track_kind { SHIM_TRACK_COLLECTIVES, SHIM_TRACK_MESSAGES, SHIM_TRACK_EXPERTS } shim_track_kind_t;

typedef struct shim_track_call {
    int device;
    uint64_t life; /* of the device (net_device_life) */
    bool captured;
    const char *collective, *algorithm; /* static */
    const void *comm;
    int32_t rank;
    shim_track_kind_t kind;
    uint32_t blocks, threads;
    uint32_t parts; /* calls of the launch */
    uint64_t bytes;
} shim_track_call_t;

/* Whether any GPU has stamps. */
extern atomic_bool shim_stamps_made;

/* A captured launch under way: its GPU's stamps (NULL: none) and the call's number (0: no room). */
typedef struct shim_stamped {
    struct alg_stamps *stamps;
    uint32_t number;
} shim_stamped_t;

/* When the kernel of a call ran, on the trace's clock. */
typedef struct shim_slice {
    uint64_t begin_ns, ns;
    shim_track_call_t call;
} shim_slice_t;

#endif
