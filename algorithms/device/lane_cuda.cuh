/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_cuda.cuh - the vocabulary of lane.h on CUDA. All inline PTX of the
 * kernels is here; each wrapper says who supplies the ordering.
 */
#ifndef SHUNT_LANE_CUDA_CUH
#define SHUNT_LANE_CUDA_CUH

#include <cuda_runtime.h>

#define LANE_FN __device__ __forceinline__
#define LANE_HOST_FN __host__ __device__ __forceinline__ /* for launch code too */
#define LANE_UNROLL _Pragma("unroll")
#define LANE_ROLL _Pragma("unroll 1")
/* Rarely run code stays out of line: fetching code is part of a short message's latency. */
#define LANE_COLD_FN static __device__ __noinline__

/* PTX ISA: add, mul and max of f32 give the NaN 0x7fffffff, and the maximum of both zeros is +0. */
#define LANE_ANY_ORDER true

/* More is of no use: a GPU's other lanes are ahead, too. */
static const uint32_t LANE_AHEAD = 1;

/* Of a chunk; more only lengthens both ends of the pipeline. */
static const uint32_t LANE_ROWS = 4;

typedef struct lane {
    uint32_t block, blocks, thread, threads;
    uint32_t polls;    /* of all waits: a count for each wait makes the compiler spill */
    uint64_t deadline; /* ns of globaltimer; 0: the first look sets it */
    uint32_t grid_block, grid_blocks;
} lane_t;

LANE_FN lane_t lane_here()
{
    return lane_t{blockIdx.x, gridDim.x, threadIdx.x, blockDim.x, 0, 0, blockIdx.x, gridDim.x};
}

LANE_FN void lane_part(lane_t &lane, uint32_t, uint32_t from, uint32_t to)
{
    lane.block -= from;
    lane.blocks = to - from;
}

/* griddepcontrol.wait: until all earlier work of the stream is complete and visible. Without the launch attribute it
 * returns at once. The assembler would move all arithmetic behind it, to its use: a branch on `held`, which is never 0,
 * keeps the arithmetic for `held` before it. early: let the successor in (alg_call_t). */
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

LANE_FN uint32_t lane_warp_size()
{
    return 32;
}

/* ld.global.v4: the caller's input, constant while the kernel runs except for this lane's own stores. */
LANE_FN vec16_t lane_load(const void *p)
{
    const uint4 v = *(const uint4 *)p;
    return vec16_t{{v.x, v.y, v.z, v.w}};
}

/* ld.relaxed.gpu: read from L2, and not moved by the compiler. */
LANE_FN vec16_t lane_load_relaxed(const void *p)
{
    vec16_t v;
    asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p)
                 : "memory");
    return v;
}

/* The assembler moves the use of an earlier load up to before a branch, and waits for it there. So a load behind a
 * branch (or a predicate, which it turns into one) is not in flight beside it, which costs 0.2 us of a short message;
 * and it would move a plain load down behind the branch of its user. Needs no order: the input is constant, as for
 * lane_load. */
LANE_FN vec16_t lane_load_if(bool wanted, const void *p, const void *any)
{
    return lane_load_relaxed(wanted ? p : any);
}

/* st.global.cs: results leave L2 first, so that staging and scratch stay. */
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

/* st.relaxed.sys: no order with other stores; the sentinel protocol needs none. */
LANE_FN void lane_put(void *p, const vec16_t &v)
{
    const uint64_t lo = (uint64_t)v.w[1] << 32 | v.w[0], hi = (uint64_t)v.w[3] << 32 | v.w[2];
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(p), "l"(lo), "l"(hi) : "memory");
}

LANE_FN void lane_put_word(void *p, uint32_t w)
{
    asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(p), "r"(w) : "memory");
}

/* ld.relaxed.sys: sees a peer's put some time after it was made; each 8 bytes of it are whole. */
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

/* Plain store: the end of the kernel orders it before any later put of a peer there (algorithm.h). */
LANE_FN void lane_rearm(void *p)
{
    *(uint4 *)p = make_uint4(SENTINEL, SENTINEL, SENTINEL, SENTINEL);
}

LANE_FN void lane_rearm_word(void *p)
{
    *(uint32_t *)p = SENTINEL;
}

/* Staging: lane_raise and lane_flag order these accesses. The store is weak; the load must not be served by L1, which a
 * peer's stores do not invalidate. */
LANE_FN void lane_copy_out(void *p, const vec16_t &v)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
                 : "memory");
}

LANE_FN vec16_t lane_copy_in(const void *p)
{
    return lane_load_relaxed(p);
}

/* fence.acq_rel.sys: cumulative over what the warp's other lanes stored before lane_warp_sync. One fence serves the
 * flags to all peers. */
LANE_FN void lane_fence()
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/* After lane_fence, which orders it. */
LANE_FN void lane_raise(void *p, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

/* ld.acquire.sys; the warp's other lanes are ordered by lane_warp_sync after it. */
LANE_FN uint64_t lane_flag(const void *p)
{
    uint64_t w;
    asm volatile("ld.acquire.sys.global.b64 %0, [%1];" : "=l"(w) : "l"(p) : "memory");
    return w;
}

/* st.relaxed.sys. An aligned vector is one store of the GPU, and the host's lines of 64 bytes do not split it. */
LANE_FN void lane_post(void *p, const vec16_t &v)
{
    lane_put(p, v);
}

/* ld.relaxed.sys: must be answered by the host's memory, not by a cache. */
LANE_FN vec16_t lane_fetch(const void *p)
{
    return lane_poll(p);
}

LANE_FN void lane_sync()
{
    __syncthreads();
}

LANE_FN bool lane_sync_any(bool x)
{
    return __syncthreads_or(x);
}

LANE_FN void lane_warp_sync()
{
    __syncwarp();
}

/* True on every lane of the warp if it is true on any. */
LANE_FN bool lane_warp_any(bool x)
{
    return __any_sync(0xffffffffu, x);
}

/* The least x of the warp. */
LANE_FN uint32_t lane_warp_least(uint32_t x)
{
    return __reduce_min_sync(0xffffffffu, x);
}

/* Words of the control page, and counts. */
LANE_FN uint64_t lane_read_own(const uint64_t *p)
{
    uint64_t w;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(w) : "l"(p) : "memory");
    return w;
}

/* Two neighbours, aligned to 16 bytes. */
LANE_FN void lane_read_both(const uint64_t *p, uint64_t &first, uint64_t &second)
{
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(p) : "memory");
}

LANE_FN void lane_add_own(uint64_t *p, uint64_t x)
{
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}

LANE_FN void lane_or_own(uint64_t *p, uint64_t x)
{
    asm volatile("red.relaxed.gpu.global.or.b64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}

LANE_FN void lane_write_own(uint64_t *p, uint64_t w)
{
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(p), "l"(w) : "memory");
}

/* The host's abort word is a PCIe read away. A GPU can make some five million such reads a second, and they delay data
 * that comes over the link. So per scratch one waiting lane reads it every LANE_LOOK_NS: the word at ALG_LOOK_OFFSET
 * says when it was last read, or (LANE_STOP) that the kernels are to stop; such a scratch is not used again
 * (scratch.c). A warp comes here after LANE_POLLS polls of some 0.8 us, so an abort frees a kernel within half a
 * millisecond. When every lane read it, a peer 1 ms late cost 0.4 ms more; with every warp in turn, a peer 0.3 ms late
 * cost 0.2 ms (docs/notebook/kernels.md). */
enum { LANE_POLLS = 256, LANE_LOOK_NS = 100000, LANE_STOP = 1 };

/* Leave the call: no kernel behind this one may store. tell: make the peers, which will not get this rank's data, leave
 * it too (after an abort the program aborts them). The word in the peer's scratch orders nothing. */
LANE_FN void lane_leave(volatile alg_control_t *control, uint8_t *own, bool tell)
{
    lane_or_own((uint64_t *)(own + ALG_EPOCH_OFFSET), ALG_EPOCH_STOPPED);
    lane_write_own((uint64_t *)(own + ALG_LOOK_OFFSET), LANE_STOP);
    for (int r = 0; tell && r < ALG_MAX_RANKS; r++) {
        const uint64_t at = control->stop_at[r];
        if (at)
            asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(at), "l"((uint64_t)1) : "memory");
    }
}

/* The team is lost: free every other lane at once. */
LANE_FN void lane_give_up(volatile alg_control_t *control, uint8_t *own, uint32_t status)
{
    control->status = status;
    __threadfence_system();
    control->abort = 1;
    lane_leave(control, own, true);
}

LANE_COLD_FN void lane_lose_apart(volatile alg_control_t *control, uint8_t *own)
{
    lane_give_up(control, own, ALG_STATUS_PEER_LEFT);
}

LANE_FN void lane_lose(const alg_team_t &team)
{
    lane_lose_apart(team.control, team.own);
}

LANE_FN bool lane_peer_left(volatile const alg_control_t *control)
{
    const uint64_t here = control->stop_here;
    uint64_t any = 0;
    for (int r = 0; here && r < ALG_MAX_RANKS; r++)
        any |= lane_flag((const void *)(here + 8 * r));
    return any;
}

/* Returns the deadline, 0 if there is none, or LANE_STOP. `own` is the team's. */
LANE_FN uint64_t lane_look_alone(volatile alg_control_t *control, uint8_t *own, uint64_t timeout_ns, uint64_t deadline)
{
    uint64_t *look = (uint64_t *)(own + ALG_LOOK_OFFSET);
    const uint64_t last = lane_read_own(look);
    if (last == LANE_STOP)
        return LANE_STOP;
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    uint32_t status = ALG_STATUS_OK;
    if (now - last > LANE_LOOK_NS && atomicCAS((unsigned long long *)look, last, now) == last) {
        if (control->abort) {
            lane_leave(control, own, false);
            return LANE_STOP;
        }
        if (lane_peer_left(control))
            status = ALG_STATUS_PEER_LEFT;
    }
    if (status == ALG_STATUS_OK) {
        if (timeout_ns == 0)
            return 0;
        if (deadline == 0)
            return now + timeout_ns;
        if (now < deadline)
            return deadline;
        status = ALG_STATUS_TIMEOUT;
    }
    lane_give_up(control, own, status);
    return LANE_STOP;
}

/* One lane for all of the warp that arrived together. All arguments by value: a team's address would slow the hot path.
 * */
LANE_COLD_FN uint64_t lane_look(volatile alg_control_t *control, uint8_t *own, uint64_t timeout_ns, uint64_t deadline)
{
    const uint32_t here = __activemask(), first = __ffs((int)here) - 1;
    if (threadIdx.x % 32 == first)
        deadline = lane_look_alone(control, own, timeout_ns, deadline);
    return __shfl_sync(here, deadline, (int)first);
}

LANE_FN void lane_wait_begins(lane_t &lane)
{
    lane.deadline = 0;
}

/* A kernel here does not learn which ranks are gone. */
LANE_FN void lane_awaits(lane_t &, uint32_t)
{
}

LANE_FN bool lane_stop(lane_t &lane, const alg_team_t &team)
{
    if (++lane.polls % LANE_POLLS != 0)
        return false;
    lane.deadline = lane_look(team.control, team.own, team.timeout_ns, lane.deadline);
    return lane.deadline == LANE_STOP;
}

#endif
