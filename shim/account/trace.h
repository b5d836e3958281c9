/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - SHUNT_TRACE: all calls as events of a trace for Perfetto and chrome://tracing; their kernels: track.h. A
 * call costs two clock readings and a copy into its thread's ring, which a background thread formats and writes later.
 * A full ring drops events and counts them. After every write the file is a complete JSON array, even if the process is
 * killed. */
#ifndef SHUNT_SHIM_TRACE_H
#define SHUNT_SHIM_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shunt.h"

enum { SHIM_TRACE_EVENT_BYTES = 768 };

typedef struct shim_trace_call {
    uint64_t start_ns, host_ns; /* CLOCK_MONOTONIC, one clock for a node's ranks; the call's duration */
    const void *comm, *stream;
    shunt_decision_t decision; /* static texts; reason NULL: refused before a decision */
    const char *function;      /* static */
    uint64_t count;
    int32_t type, op; /* NCCL's numbers; op -1: none; type -1: a group's end, which has only times and result */
    int32_t rank;     /* -1: not known */
    int32_t nranks;
    int32_t tid;
    int32_t result;   /* ncclResult_t */
    int32_t captured; /* 1, 0, or -1: unknown */
} shim_trace_call_t;

extern atomic_bool shim_trace_off;

/* The time now; 0: no trace. A process's first call starts the trace. */
uint64_t shim_trace_now(void);

/* Returns a call's start_ns. 0: no trace; do not call shim_trace_end. */
static inline uint64_t shim_trace_begin(void)
{
    return __builtin_expect(atomic_load_explicit(&shim_trace_off, memory_order_relaxed), 1) ? 0 : shim_trace_now();
}

/* Sets host_ns and tid. */
void shim_trace_end(shim_trace_call_t *call);

void shim_trace_flush(void);

/* ---- Formatting (trace_text.c), for trace.c; returns the length, without a newline ---- */

size_t shim_trace_call_text(const shim_trace_call_t *call, int pid, char text[SHIM_TRACE_EVENT_BYTES]);
/* A file's first event: relates the trace's clock to the time of day. */
size_t shim_trace_head_text(const char *host, int pid, uint64_t now_ns, uint64_t realtime_ns,
                            char text[SHIM_TRACE_EVENT_BYTES]);
size_t shim_trace_dropped_text(uint64_t calls, int pid, uint64_t now_ns, char text[SHIM_TRACE_EVENT_BYTES]);

#endif
