/* SPDX-License-Identifier: Apache-2.0 */
/* track.h - the GPUs' part of SHUNT_TRACE: when the kernels of eager calls ran. Two events around a launch give its
 * times, which the trace's thread reads when both have passed. So with a trace a kernel does not start before the one
 * ahead has ended, and a call costs the host two records of events. Calls in graphs have no times. */
#ifndef SHUNT_SHIM_TRACK_H
#define SHUNT_SHIM_TRACK_H

#include <stddef.h>
#include <stdint.h>

typedef struct shim_lap shim_lap_t;

typedef struct shim_track_call {
    const char *collective, *algorithm; /* static */
    const void *comm;
    int32_t rank;
    uint32_t messages; /* not 0: messages, which may run beside the communicator's collectives */
    uint32_t blocks, threads;
    uint32_t parts; /* calls of the launch */
    uint64_t bytes;
} shim_track_call_t;

/* Call before an eager launch on `stream`, with `device` current in its `life` (net_device_life). NULL: no slice. */
shim_lap_t *shim_track_begin(int device, uint64_t life, void *stream);
/* After the launch, even if it failed. NULL is allowed. */
void shim_track_end(shim_lap_t *lap, void *stream, const shim_track_call_t *call);

/* ---- For trace.c ---- */

/* Reads the times of ended launches. In the trace's thread, without its lock: the driver may block the call. */
void shim_track_collect(void);
/* Writes the next collected launch as a slice; a track's first begins with its name. Under the trace's lock. Returns
 * the length; 0: none. */
size_t shim_track_text(int pid, char *text, size_t size);
/* Kernels without a slice since the last call, for lack of room. */
uint64_t shim_track_left_out(void);
/* Call in a forked child. */
void shim_track_forget(void);

#endif
