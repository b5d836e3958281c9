/* SPDX-License-Identifier: Apache-2.0 */
/* bulk_ptx.cuh - PTX of bulk.h: shared memory (32-bit addresses), mbarriers, cp.async.bulk. tests/emulator/ has the
 * same functions.
 *
 * Copies use the async proxy. A lane that sees a copy complete sees its data. Before copies read what lanes stored or
 * acquired, a proxy fence is needed (bulk_stored, bulk_seen). Before sm_90 the lane itself copies, which is slow. */
#ifndef SHUNT_BULK_PTX_CUH
#define SHUNT_BULK_PTX_CUH

enum { BULK_ALIGN = 128 };

extern __shared__ __align__(BULK_ALIGN)
uint8_t bulk_memory[];

LANE_FN uint32_t bulk_base()
{
    return (uint32_t)__cvta_generic_to_shared(bulk_memory);
}

LANE_FN uint32_t bulk_room()
{
    uint32_t bytes;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    return bytes;
}

LANE_FN void *bulk_pointer(uint32_t at)
{
    return __cvta_shared_to_generic(at);
}

LANE_FN vec16_t bulk_shared_vector(uint32_t at)
{
    vec16_t v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "r"(at)
                 : "memory");
    return v;
}

LANE_FN uint32_t bulk_shared_word(uint32_t at)
{
    uint32_t w;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(w) : "r"(at) : "memory");
    return w;
}

LANE_FN void bulk_shared_store(uint32_t at, const vec16_t &v)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]),
                 "r"(v.w[3])
                 : "memory");
}

LANE_FN void bulk_tell(uint32_t word, uint32_t value)
{
    asm volatile("st.release.cta.shared.b32 [%0], %1;" ::"r"(word), "r"(value) : "memory");
}

LANE_FN uint32_t bulk_told(uint32_t word)
{
    uint32_t value;
    asm volatile("ld.acquire.cta.shared.b32 %0, [%1];" : "=r"(value) : "r"(word) : "memory");
    return value;
}

/* ---- Barriers: a phase ends after all arrivals, when all announced bytes are there */

LANE_FN void bulk_barrier_make(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

LANE_FN void bulk_barriers_made()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

/* The arrival releases this lane's stores within the block. */
LANE_FN void bulk_arrive(uint32_t barrier)
{
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared::cta.b64 t, [%0]; }" ::"r"(barrier) : "memory");
}

/* Whether the phase of this parity is over. If so, the lane acquires what arrivals released. try_wait without a time
 * hint suspends the lane only briefly. */
LANE_FN bool bulk_over(uint32_t barrier, uint32_t parity)
{
    uint32_t over;
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(over)
                 : "r"(barrier), "r"(parity)
                 : "memory");
#else
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(over)
                 : "r"(barrier), "r"(parity)
                 : "memory");
#endif
    return over;
}

/* ---- Copies: addresses and bytes are multiples of 16 */

LANE_FN void bulk_copy_in(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    if (bytes > 0)
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
            "l"(from), "r"(bytes), "r"(barrier)
            : "memory");
#else
    for (uint32_t i = 0; i < bytes; i += VEC)
        bulk_shared_store(to + i, lane_copy_in((const uint8_t *)from + i));
    bulk_arrive(barrier);
#endif
}

LANE_FN void bulk_copy_out(void *to, uint32_t from, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
                 : "memory");
#else
    for (uint32_t i = 0; i < bytes; i += VEC)
        lane_copy_out((uint8_t *)to + i, bulk_shared_vector(from + i));
#endif
}

LANE_FN void bulk_group()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}

template <int N> LANE_FN void bulk_wait_read()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
#endif
}

template <int N> LANE_FN void bulk_wait_done()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
#endif
}

LANE_FN void bulk_stored()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

LANE_FN void bulk_seen()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

#endif
