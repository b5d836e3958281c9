/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - SHUNT_TRACE: every call as an event of a trace that Perfetto and
 * chrome://tracing open.
 *
 * A call costs two looks at the clock and a copy into a ring of its thread; a background thread formats and writes the
 * events later. A full ring drops events and counts them, so memory is bounded. After every write the file is a
 * complete JSON array, even if the process is killed.
 *
 * When off (the default), a call costs one relaxed load and a branch.
 */
#ifndef SHUNT_SHIM_TRACE_H
#define SHUNT_SHIM_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shunt.h"

enum { SHIM_TRACE_EVENT_BYTES = 768 }; /* the longest event as text */

typedef struct shim_trace_call {
    uint64_t start_ns, host_ns; /* CLOCK_MONOTONIC, which all ranks of a host share; how long the call took */
    const void *comm, *stream;
    shunt_decision_t decision; /* texts are static; reason NULL: the call was refused before any decision */
    const char *function;      /* static */
    uint64_t count;
    int32_t type, op; /* as NCCL numbers them; op -1: the call has none; type -1: the end of a group, without args */
    int32_t rank;     /* -1: not known */
    int32_t nranks;
    int32_t tid;
    int32_t result;   /* ncclResult_t */
    int32_t captured; /* 1, 0, or -1: not known */
} shim_trace_call_t;

extern atomic_bool shim_trace_off;

/* 0: there is no trace. Starts it at the first call of a process. */
uint64_t shim_trace_now(void);

/* When a call begins: 0 if there is nothing to do at its end. */
static inline uint64_t shim_trace_begin(void)
{
    return __builtin_expect(atomic_load_explicit(&shim_trace_off, memory_order_relaxed), 1) ? 0 : shim_trace_now();
}

/* A call that began at call->start_ns ends; host_ns and tid are filled in here. */
void shim_trace_end(shim_trace_call_t *call);

/* Write all pending events. */
void shim_trace_flush(void);

/* ---- For trace.c: formatting (trace_text.c). Returns the length; no newline at the end. ------------------ */

size_t shim_trace_call_text(const shim_trace_call_t *call, int pid, char text[SHIM_TRACE_EVENT_BYTES]);
/* The first event of a file; it relates the trace's clock to the time of day. */
size_t shim_trace_head_text(const char *host, int pid, uint64_t now_ns, uint64_t realtime_ns,
                            char text[SHIM_TRACE_EVENT_BYTES]);
/* Dropped calls. */
size_t shim_trace_dropped_text(uint64_t calls, int pid, uint64_t now_ns, char text[SHIM_TRACE_EVENT_BYTES]);

#endif
