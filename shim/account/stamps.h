/* SPDX-License-Identifier: Apache-2.0 */
/* stamps.h - for track.c: when the kernels of captured calls ran, at each replay. The graph has a stamp
 * (algorithms/stamp.h) before and behind each, so with a trace a captured kernel starts when the node ahead has ended,
 * and a replay takes some microseconds more. A call's record is never freed, since the end of its graph is not
 * known. */
#ifndef SHUNT_SHIM_STAMPS_H
#define SHUNT_SHIM_STAMPS_H

#include <stdbool.h>

#include "shim/account/slice.h"

/* Makes a GPU's stamps, tried once in its `life` (net_device_life). With the device current, outside captures: it
 * allocates, and loads a kernel. After a failure replays have no slices. */
void shim_stamps_prepare(int device, uint64_t life);
/* Like shim_track_begin and shim_track_end, for a captured launch. */
shim_stamped_t shim_stamps_begin(const shim_track_call_t *call, void *stream);
void shim_stamps_end(const shim_stamped_t *stamped, void *stream);

/* Compares the GPUs' clocks with the host's. In the trace's thread, without its lock: the driver may block the call. */
void shim_stamps_collect(void);
/* Sets `slice` to the next kernel that has run; false: none. Under the trace's lock. */
bool shim_stamps_next(shim_slice_t *slice);
/* As shim_track_left_out. */
uint64_t shim_stamps_left_out(void);
/* Call in a forked child. */
void shim_stamps_forget(void);

#endif
