/* SPDX-License-Identifier: Apache-2.0 */
/* lane_ptx.cuh - all PTX of kernels except bulk copies (bulk_ptx.cuh). tests/emulator/ has the same functions. */
#ifndef SHUNT_LANE_PTX_CUH
#define SHUNT_LANE_PTX_CUH

/* Without the launch attribute the wait returns at once. The branch on `held`, never 0, keeps its arithmetic before
 * it. */
LANE_FN void lane_begin(uint64_t held, uint32_t early)
{
#if __CUDA_ARCH__ >= 900
    if (held == 0)
        __trap();
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (early)
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* The assembler cannot see through the shuffle, so it computes the address here, not at its use after a wait. */
LANE_FN void lane_keep(uint8_t *&p)
{
    uint32_t low = (uint32_t)(uintptr_t)p, high = (uint32_t)((uintptr_t)p >> 32);
    asm volatile("shfl.sync.idx.b32 %0, %0, %1, 31, 0xffffffff;" : "+r"(low) : "r"(threadIdx.x % 32));
    asm volatile("shfl.sync.idx.b32 %0, %0, %1, 31, 0xffffffff;" : "+r"(high) : "r"(threadIdx.x % 32));
    p = (uint8_t *)((uint64_t)high << 32 | low);
}

LANE_FN void lane_keep_same(uint32_t &x)
{
    asm volatile("redux.sync.or.b32 %0, %0, 0xffffffff;" : "+r"(x));
}

/* A plain load: no other lane changes these bytes while the kernel runs. */
LANE_FN vec16_t lane_load(const void *p)
{
    const uint4 v = *(const uint4 *)p;
    return vec16_t{{v.x, v.y, v.z, v.w}};
}

LANE_FN vec16_t lane_load_relaxed(const void *p)
{
    vec16_t v;
    asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p)
                 : "memory");
    return v;
}

/* A load behind a branch or predicate would wait for earlier loads. It is relaxed, since the assembler would sink a
 * plain load below its user's branch. */
LANE_FN vec16_t lane_load_if(bool wanted, const void *p, const void *dummy)
{
    return lane_load_relaxed(wanted ? p : dummy);
}

/* With this store L2 evicts results before staging and scratch. */
LANE_FN void lane_store(void *p, const vec16_t &v)
{
    __stcs((uint4 *)p, make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]));
}

LANE_FN uint32_t lane_load_word(const void *p)
{
    return *(const uint32_t *)p;
}

template <class T> LANE_FN void lane_store_part(void *p, T x)
{
    *(T *)p = x;
}

LANE_FN void lane_put(void *p, const vec16_t &v)
{
    const uint64_t lo = (uint64_t)v.w[1] << 32 | v.w[0], hi = (uint64_t)v.w[3] << 32 | v.w[2];
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(p), "l"(lo), "l"(hi) : "memory");
}

LANE_FN void lane_put_word(void *p, uint32_t w)
{
    asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(p), "r"(w) : "memory");
}

LANE_FN vec16_t lane_poll(const void *p)
{
    uint64_t lo, hi;
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(lo), "=l"(hi) : "l"(p) : "memory");
    return vec16_t{{(uint32_t)lo, (uint32_t)(lo >> 32), (uint32_t)hi, (uint32_t)(hi >> 32)}};
}

LANE_FN uint32_t lane_poll_word(const void *p)
{
    uint32_t w;
    asm volatile("ld.relaxed.sys.global.b32 %0, [%1];" : "=r"(w) : "l"(p) : "memory");
    return w;
}

/* The kernel's end orders this plain store before a peer's next puts (algorithm.h). */
LANE_FN void lane_rearm(void *p)
{
    *(uint4 *)p = make_uint4(SENTINEL, SENTINEL, SENTINEL, SENTINEL);
}

LANE_FN void lane_rearm_word(void *p)
{
    *(uint32_t *)p = SENTINEL;
}

/* A weak store; lane_copy_in loads past L1, which peers' stores do not invalidate. */
LANE_FN void lane_copy_out(void *p, const vec16_t &v)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
                 : "memory");
}

LANE_FN vec16_t lane_copy_in(const void *p)
{
    return lane_load_relaxed(p);
}

LANE_FN void lane_fence()
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

LANE_FN void lane_raise(void *p, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

LANE_FN uint64_t lane_flag(const void *p)
{
    uint64_t w;
    asm volatile("ld.acquire.sys.global.b64 %0, [%1];" : "=l"(w) : "l"(p) : "memory");
    return w;
}

/* 16 bytes with one mark must arrive whole: one access as .b128, as a vector before CUDA 12.4 (docs/lab/proofs.md). */
#if __CUDACC_VER_MAJOR__ > 12 || __CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 4
LANE_FN void lane_post(void *p, const vec16_t &v)
{
    const uint64_t lo = (uint64_t)v.w[1] << 32 | v.w[0], hi = (uint64_t)v.w[3] << 32 | v.w[2];
    asm volatile("{ .reg .b128 x; mov.b128 x, {%1, %2}; st.relaxed.sys.global.b128 [%0], x; }" ::"l"(p), "l"(lo),
                 "l"(hi)
                 : "memory");
}

LANE_FN vec16_t lane_fetch(const void *p)
{
    uint64_t lo, hi;
    asm volatile("{ .reg .b128 x; ld.relaxed.sys.global.b128 x, [%2]; mov.b128 {%0, %1}, x; }"
                 : "=l"(lo), "=l"(hi)
                 : "l"(p)
                 : "memory");
    return vec16_t{{(uint32_t)lo, (uint32_t)(lo >> 32), (uint32_t)hi, (uint32_t)(hi >> 32)}};
}
#else
LANE_FN void lane_post(void *p, const vec16_t &v)
{
    lane_put(p, v);
}

LANE_FN vec16_t lane_fetch(const void *p)
{
    return lane_poll(p);
}
#endif

LANE_FN uint64_t lane_read_own(const uint64_t *p)
{
    uint64_t w;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(w) : "l"(p) : "memory");
    return w;
}

/* Reads two neighbouring words, aligned to 16 bytes. */
LANE_FN void lane_read_both(const uint64_t *p, uint64_t &first, uint64_t &second)
{
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(p) : "memory");
}

LANE_FN void lane_add_own(uint64_t *p, uint64_t x)
{
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}

LANE_FN uint64_t lane_take_own(uint64_t *p, uint64_t n)
{
    uint64_t w;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(w) : "l"(p), "l"(n) : "memory");
    return w;
}

LANE_FN void lane_or_own(uint64_t *p, uint64_t x)
{
    asm volatile("red.relaxed.gpu.global.or.b64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}

LANE_FN void lane_write_own(uint64_t *p, uint64_t w)
{
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(p), "l"(w) : "memory");
}

LANE_FN uint8_t *lane_shared()
{
    extern __shared__ __align__(16) uint8_t lane_memory[];
    return lane_memory;
}

LANE_FN uint64_t lane_now()
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

#endif
