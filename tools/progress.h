/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h - how far a measurement is, on stderr: a bar and an estimate of the time left on a terminal, nothing
 * elsewhere.
 */
#ifndef SHUNT_TOOLS_PROGRESS_H
#define SHUNT_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tool_progress {
    bool terminal;       /* stderr is one */
    double start;        /* seconds of the monotonic clock */
    double weight, done; /* of all cases, in units of a small one */
    double limit;        /* seconds after which it ends in any case; 0: none */
} tool_progress_t;

/* What a case of so many bytes weighs. */
double tool_progress_weight(uint64_t bytes);
/* The clock starts. */
void tool_progress_open(tool_progress_t *progress, double weight);
void tool_progress_show(const tool_progress_t *progress);
/* Take the bar away, so that a line can be printed in its place. */
void tool_progress_hide(const tool_progress_t *progress);
/* Seconds since the start. */
double tool_progress_elapsed(const tool_progress_t *progress);
/* Seconds left if the rest goes as what is done, up to the limit; negative: too early to say. */
double tool_progress_left(const tool_progress_t *progress, double elapsed);

#endif
