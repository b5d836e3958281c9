/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h - progress of a measurement: a bar and the estimated time left, on stderr. Nothing is shown unless stderr
 * is a terminal (terminal.h).
 */
#ifndef SHUNT_TOOLS_PROGRESS_H
#define SHUNT_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tool_progress {
    bool terminal;       /* stderr is a terminal */
    double start;        /* seconds of the monotonic clock */
    double weight, done; /* weights of all cases and of finished ones; a small case weighs 1 */
    double within;       /* completed part of the running case's weight */
    double limit;        /* time limit in seconds; 0: none */
} tool_progress_t;

double tool_progress_weight(uint64_t bytes);
void tool_progress_open(tool_progress_t *progress, double weight);
void tool_progress_show(const tool_progress_t *progress);
/* Erase the bar, so that a line can be printed in its place. */
void tool_progress_hide(const tool_progress_t *progress);
double tool_progress_elapsed(const tool_progress_t *progress);
/* Estimated seconds left, at most up to the limit; negative: too early to estimate. */
double tool_progress_left(const tool_progress_t *progress, double elapsed);

#endif
