/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_ptx.cuh - algorithms/device/lane_ptx.cuh for emulated GPUs: each access there is one access here, with no
 * stronger order.
 */
#ifndef SHUNT_LANE_PTX_CUH
#define SHUNT_LANE_PTX_CUH

LANE_FN void lane_begin(uint64_t held, uint32_t early)
{
    if (held == 0)
        abort();
    emulator_wait_for_predecessor();
    if (early)
        emulator_let_successor_in();
}

LANE_FN void lane_keep(uint8_t *&)
{
}

LANE_FN void lane_keep_same(uint32_t &)
{
}

template <class T> LANE_FN T lane_load_of(const void *p)
{
    T x;
    emulator_load(p, &x, sizeof x);
    return x;
}

template <class T> LANE_FN void lane_store_of(void *p, const T &x)
{
    emulator_store(p, &x, sizeof x);
}

/* Of 16 bytes each aligned 8 are one store. */
LANE_FN void lane_store_halves(void *p, const vec16_t &v)
{
    emulator_store(p, &v.w[0], 8);
    emulator_store((uint8_t *)p + 8, &v.w[2], 8);
}

LANE_FN vec16_t lane_load_halves(const void *p)
{
    vec16_t v;
    emulator_load(p, &v.w[0], 8);
    emulator_load((const uint8_t *)p + 8, &v.w[2], 8);
    return v;
}

LANE_FN vec16_t lane_load(const void *p)
{
    return lane_load_halves(p);
}

LANE_FN vec16_t lane_load_if(bool wanted, const void *p, const void *dummy)
{
    return lane_load_halves(wanted ? p : dummy);
}

LANE_FN void lane_store(void *p, const vec16_t &v)
{
    lane_store_halves(p, v);
}

LANE_FN uint32_t lane_load_word(const void *p)
{
    return lane_load_of<uint32_t>(p);
}

template <class T> LANE_FN void lane_store_part(void *p, T x)
{
    lane_store_of(p, x);
}

LANE_FN void lane_put(void *p, const vec16_t &v)
{
    lane_store_halves(p, v);
}

LANE_FN void lane_put_word(void *p, uint32_t w)
{
    lane_store_of(p, w);
}

LANE_FN vec16_t lane_poll(const void *p)
{
    return lane_load_halves(p);
}

LANE_FN uint32_t lane_poll_word(const void *p)
{
    return lane_load_of<uint32_t>(p);
}

/* Late, so that peers' next data meets places that are not armed yet where nothing prevents it. */
LANE_FN void lane_rearm(void *p)
{
    const uint32_t armed[2] = {SENTINEL, SENTINEL};
    emulator_store_late(p, armed, sizeof armed);
    emulator_store_late((uint8_t *)p + 8, armed, sizeof armed);
}

LANE_FN void lane_rearm_word(void *p)
{
    emulator_store_late(p, &SENTINEL, sizeof SENTINEL);
}

LANE_FN void lane_copy_out(void *p, const vec16_t &v)
{
    lane_store_halves(p, v);
}

LANE_FN vec16_t lane_copy_in(const void *p)
{
    return lane_load_halves(p);
}

LANE_FN void lane_fence()
{
    emulator_fence();
}

LANE_FN void lane_raise(void *p, uint64_t value)
{
    lane_store_of(p, value);
}

LANE_FN uint64_t lane_flag(const void *p)
{
    return lane_load_of<uint64_t>(p);
}

/* One store, and one load. */
LANE_FN void lane_post(void *p, const vec16_t &v)
{
    emulator_store(p, v.w, VEC);
}

LANE_FN vec16_t lane_fetch(const void *p)
{
    return lane_load_of<vec16_t>(p);
}

LANE_FN uint64_t lane_read_own(const uint64_t *p)
{
    return lane_load_of<uint64_t>(p);
}

LANE_FN void lane_read_both(const uint64_t *p, uint64_t &first, uint64_t &second)
{
    first = lane_read_own(p);
    second = lane_read_own(p + 1);
}

LANE_FN void lane_add_own(uint64_t *p, uint64_t x)
{
    emulator_add(p, x);
}

LANE_FN uint64_t lane_take_own(uint64_t *p, uint64_t n)
{
    return emulator_take(p, n);
}

LANE_FN void lane_or_own(uint64_t *p, uint64_t x)
{
    emulator_or(p, x);
}

LANE_FN void lane_write_own(uint64_t *p, uint64_t w)
{
    lane_store_of(p, w);
}

LANE_FN uint64_t lane_now()
{
    return emulator_now_ns();
}

LANE_FN uint8_t *lane_shared()
{
    return (uint8_t *)emulator_shared();
}

#endif
