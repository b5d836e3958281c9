/* SPDX-License-Identifier: Apache-2.0 */
/* lane_late.h - for tests, in lane_cpu.h: delays and reorders stores as PCIe may, and beyond. */
#ifndef SHUNT_LANE_LATE_H
#define SHUNT_LANE_LATE_H

enum { LANE_POSTS = 48 };
typedef struct lane_posts {
    uint32_t count, seed;
    struct {
        void *to;
        vec16_t v;
    } post[LANE_POSTS];
} lane_posts_t;
inline thread_local lane_posts_t lane_posts;

LANE_FN void lane_land(uint32_t i)
{
    lane_posts_t &all = lane_posts;
    lane_put_now(all.post[i].to, all.post[i].v);
    all.post[i] = all.post[--all.count];
}

LANE_FN void lane_land_one()
{
    lane_posts_t &all = lane_posts;
    if (all.count == 0)
        return;
    all.seed = all.seed * 1664525u + 1013904223u;
    lane_land((all.seed >> 8) % all.count);
}

/* A lane's accesses to one address stay in order. */
LANE_FN void lane_land_at(const void *p)
{
    for (uint32_t i = 0; i < lane_posts.count; i++) {
        if (lane_posts.post[i].to == p)
            lane_land(i);
    }
}

LANE_FN void lane_put(void *p, const vec16_t &v)
{
    lane_posts_t &all = lane_posts;
    lane_land_at(p);
    if (all.count == LANE_POSTS)
        lane_land_one();
    all.post[all.count].to = p;
    all.post[all.count++].v = v;
}

LANE_FN void lane_fence()
{
    while (lane_posts.count > 0)
        lane_land_one();
}

#endif
