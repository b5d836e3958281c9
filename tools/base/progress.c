/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.c - see progress.h.
 */
#include "tools/base/progress.h"

#include <stdio.h>

#include "tools/base/clock.h"
#include "tools/base/terminal.h"

static const double least_part = 0.02; /* fraction done before the remaining time is estimated */

double tool_progress_weight(uint64_t bytes)
{
    return 1 + (double)bytes / (32 << 20);
}

void tool_progress_open(tool_progress_t *progress, double weight)
{
    *progress = (tool_progress_t){.terminal = tool_is_terminal(stderr), .start = tool_now(), .weight = weight};
}

double tool_progress_elapsed(const tool_progress_t *progress)
{
    return tool_now() - progress->start;
}

static double part_of(const tool_progress_t *progress)
{
    const double part = progress->weight > 0 ? (progress->done + progress->within) / progress->weight : 0;
    return part < 1 ? part : 1;
}

double tool_progress_left(const tool_progress_t *progress, double elapsed)
{
    const double part = part_of(progress), most = progress->limit - elapsed;
    const double left = part >= least_part ? elapsed / part * (1 - part) : -1;
    return progress->limit > 0 && left > most ? (most > 0 ? most : 0) : left;
}

void tool_progress_show(const tool_progress_t *progress)
{
    enum { MOST_WIDTH = 30, LINE = 64 };
    static const char full[] = "##############################", empty[] = "                              ";
    const double left = tool_progress_left(progress, tool_progress_elapsed(progress));
    char words[LINE];
    if (!progress->terminal) {
        return;
    }
    int length = snprintf(words, sizeof words, "%3.0f%%", part_of(progress) * 100);
    if (left >= 60) {
        length += snprintf(words + length, sizeof words - (size_t)length, ", about %d min %d s left", (int)(left / 60),
                           (int)left % 60);
    } else if (left >= 0) {
        length += snprintf(words + length, sizeof words - (size_t)length, ", about %.0f s left", left);
    }
    const int columns = tool_columns(stderr) - 1; /* some terminals wrap as soon as the last column is written */
    const int room = columns - length - 3, width = room < MOST_WIDTH ? room : MOST_WIDTH;
    const int filled = (int)(part_of(progress) * width);
    if (width > 0) {
        fprintf(stderr, "\r[%.*s%.*s] %s\033[K", filled, full, width - filled, empty, words);
    } else {
        fprintf(stderr, "\r%.*s\033[K", columns, words); /* erase the rest of a longer line */
    }
    fflush(stderr);
}

void tool_progress_hide(const tool_progress_t *progress)
{
    if (progress->terminal) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}
