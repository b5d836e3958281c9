/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_points.c - the sizes that a quick run measures: first a few over the whole range, then a bisection of each range
 * at whose ends the choices differ. See tune.h.
 */
#include <math.h>
#include <string.h>

#include "tools/tune/tune.h"

enum { COARSE = 16, FINE = 2 }; /* ratios of neighbouring sizes */

static uint64_t next_coarse(const tune_points_t *points)
{
    if (points->count == 0) {
        return points->from_bytes;
    }
    const uint64_t last = points->point[points->count - 1].bytes;
    if (last >= points->to_bytes) {
        return 0;
    }
    return last < points->to_bytes / COARSE ? last * COARSE : points->to_bytes;
}

static bool differ(const tune_point_t *a, const tune_point_t *b, bool nccl)
{
    const bool crossing = (strcmp(a->choice, "nccl") == 0) != (strcmp(b->choice, "nccl") == 0);
    return nccl ? crossing : strcmp(a->choice, b->choice) != 0;
}

/* The middle of the first range at whose ends the choices differ; 0: there is none. */
static uint64_t next_middle(const tune_points_t *points, bool nccl)
{
    for (uint32_t i = 0; i + 1 < points->count; i++) {
        const tune_point_t *a = &points->point[i], *b = &points->point[i + 1];
        if (differ(a, b, nccl) && b->bytes > FINE * a->bytes) {
            return (uint64_t)exp2(round((log2((double)a->bytes) + log2((double)b->bytes)) / 2));
        }
    }
    return 0;
}

uint64_t tune_points_next(const tune_points_t *points, bool coarse)
{
    if (points->count == TUNE_MOST_POINTS) {
        return 0;
    }
    const uint64_t bytes = next_coarse(points);
    if (bytes != 0 || coarse) {
        return bytes;
    }
    const uint64_t middle = next_middle(points, true); /* first refine the sizes at which NCCL becomes faster */
    return middle != 0 ? middle : next_middle(points, false);
}

uint32_t tune_points_coarse(uint64_t from_bytes, uint64_t to_bytes)
{
    tune_points_t points = {.from_bytes = from_bytes, .to_bytes = to_bytes};
    for (uint64_t bytes; (bytes = tune_points_next(&points, true)) != 0;) {
        tune_points_add(&points, bytes, "");
    }
    return points.count;
}

void tune_points_add(tune_points_t *points, uint64_t bytes, const char *choice)
{
    uint32_t at = points->count++;
    for (; at > 0 && points->point[at - 1].bytes > bytes; at--) {
        points->point[at] = points->point[at - 1];
    }
    points->point[at] = (tune_point_t){.bytes = bytes};
    strncpy(points->point[at].choice, choice, sizeof points->point[at].choice - 1);
}
