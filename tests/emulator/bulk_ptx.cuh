/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk_ptx.cuh - algorithms/device/bulk_ptx.cuh for emulated GPUs. 32-bit addresses are offsets in the block's memory.
 */
#ifndef SHUNT_BULK_PTX_CUH
#define SHUNT_BULK_PTX_CUH

LANE_FN uint32_t bulk_base()
{
    return 0;
}

LANE_FN uint32_t bulk_room()
{
    return emulator_shared_bytes();
}

LANE_FN void *bulk_pointer(uint32_t at)
{
    return (uint8_t *)emulator_shared() + at;
}

LANE_FN vec16_t bulk_shared_vector(uint32_t at)
{
    return lane_load_of<vec16_t>((uint8_t *)emulator_shared() + at);
}

LANE_FN uint32_t bulk_shared_word(uint32_t at)
{
    return lane_load_of<uint32_t>((uint8_t *)emulator_shared() + at);
}

LANE_FN void bulk_shared_store(uint32_t at, const vec16_t &v)
{
    emulator_store_shared((uint8_t *)emulator_shared() + at, v.w, VEC);
}

LANE_FN void bulk_tell(uint32_t word, uint32_t value)
{
    emulator_tell(word, value);
}

LANE_FN uint32_t bulk_told(uint32_t word)
{
    return emulator_told(word);
}

LANE_FN void bulk_barrier_make(uint32_t barrier, uint32_t arrivals)
{
    emulator_barrier_make(barrier, arrivals);
}

LANE_FN void bulk_barriers_made()
{
    /* They are visible at once. */
}

LANE_FN void bulk_arrive(uint32_t barrier)
{
    emulator_arrive(barrier, 0);
}

LANE_FN bool bulk_over(uint32_t barrier, uint32_t parity)
{
    return emulator_phase_over(barrier, parity);
}

LANE_FN void bulk_copy_in(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    emulator_arrive(barrier, bytes);
    if (bytes > 0)
        emulator_copy_in(to, from, bytes, barrier);
}

LANE_FN void bulk_copy_out(void *to, uint32_t from, uint32_t bytes)
{
    emulator_copy_out(to, from, bytes);
}

LANE_FN void bulk_group()
{
    emulator_group();
}

template <int N> LANE_FN void bulk_wait_read()
{
    emulator_wait_groups(N, false);
}

template <int N> LANE_FN void bulk_wait_done()
{
    emulator_wait_groups(N, true);
}

LANE_FN void bulk_stored()
{
    emulator_stored();
}

LANE_FN void bulk_seen()
{
    /* A copy's source is read after the copy was asked for. */
}

#endif
