/* SPDX-License-Identifier: Apache-2.0 */
/* track.h - the GPUs' part of SHUNT_TRACE: when our kernels ran. Two events around an eager launch give its times,
 * which the trace's thread reads when both have passed; captured launches have stamps (stamps.h). So with a trace a
 * kernel does not start before the one ahead has ended, and a call costs the host two records of events. */
#ifndef SHUNT_SHIM_TRACK_H
#define SHUNT_SHIM_TRACK_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/account/slice.h"

typedef struct shim_lap shim_lap_t;

/* A launch under way. All 0: it gets no slice. */
typedef struct shim_timed {
    shim_lap_t *lap;
    shim_stamped_t stamped;
} shim_timed_t;

/* Whether to time a captured launch though the trace has ended: its graph may update one that was captured before,
 * which must have the same nodes. */
static inline bool shim_track_goes_on(bool captured)
{
    return captured && atomic_load_explicit(&shim_stamps_made, memory_order_relaxed);
}

/* For a communicator of this GPU, with the device current, outside captures (shim_stamps_prepare). */
void shim_track_prepare(int device, uint64_t life);
/* Before a launch on `stream`, with the call's device current. */
shim_timed_t shim_track_begin(const shim_track_call_t *call, void *stream);
void shim_track_end(shim_timed_t timed, const shim_track_call_t *call, void *stream);

/* ---- For trace.c ---- */

/* Reads the times of ended launches. In the trace's thread, without its lock: the driver may block the call. */
void shim_track_collect(void);
/* Writes the next collected launch as a slice, behind the track's name if it is the track's first. Under the trace's
 * lock. Returns the length; 0: none. */
size_t shim_track_text(int pid, char *text, size_t size);
/* Kernels without a slice since the last call, for lack of room. */
uint64_t shim_track_left_out(void);
/* Call in a forked child. */
void shim_track_forget(void);

#endif
