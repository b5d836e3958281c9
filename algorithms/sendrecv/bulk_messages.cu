/* SPDX-License-Identifier: Apache-2.0 */
/* bulk_messages.cu - serves groups with long messages: bulk copies carry the long messages (long.h), rings the others
 * (mixed.h).
 *
 * One kernel has warps for both kinds, so no message waits for another of its group. A message's bytes alone decide its
 * kind (alg_message_t), so both ends agree. */
#include "algorithms/bulk/launch.h"
#include "algorithms/sendrecv/fill.h"
#include "algorithms/sendrecv/long_roles.h"
#include "algorithms/sendrecv/mixed.h"

/* WHOLE: all long messages' buffers are aligned to 16 bytes. */
struct bulk_messages {
    /* SHORT_WARPS: warps for messages in rings. LEAST_SLOTS: slots that keep a link busy until credit returns. */
    enum {
        DEPTH = BULK_DEPTH,
        LAG = 1,
        WARPS = 7,
        PLAIN_WARPS = 6 + BULK_TURNS + BULK_TURNS * BULK_WARPS,
        SHORT_WARPS = 8,
        MOST_THREADS = 768,
        LEAST_SLOTS = 64
    };

    LANE_HOST_FN static constexpr uint32_t warps(bool whole)
    {
        return whole ? (uint32_t)WARPS : (uint32_t)PLAIN_WARPS;
    }

    /* Returns 0 if a GPU's rings leave no room for LEAST_SLOTS. The CPU device computes the same. */
    static uint64_t max_bytes(alg_collective_t, const alg_map_t *map, uint32_t nranks, alg_type_t)
    {
        enum { GPU_LANES = 32, GPU_CHUNK = 16 << 10 };
        if (nranks < 2)
            return 0;
        const rings_t rings = rings_make(map->rings_bytes, nranks, GPU_LANES);
        const uint64_t used = rings_bytes(rings, nranks, GPU_LANES) + map->rings_bytes / RINGS_PER_LIST;
        return (map->rings_bytes - used) / (nranks - 1) >= (uint64_t)LEAST_SLOTS * GPU_CHUNK ? BULK_MOST_BYTES : 0;
    }

    static void shape(alg_collective_t, uint64_t bytes, uint32_t, uint32_t *blocks, uint32_t *threads)
    {
        bulk_shape(bytes, blocks);
        *threads = MOST_THREADS;
    }

    template <bool WHOLE, int MOST>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const long_messages<MOST> &m)
    {
        bulk_block_t block;
        bulk_make(block, m.depth, BULK_STAGE, BULK_STAGE, 1);
        bulk_init(lane, block, 1, 1, WHOLE ? 1 : BULK_WARPS);
        const long_job<MOST> j = {team, m, &block.ring[0], &block.ring[1], block.word};
        lane_sync();
        lane_begin((uintptr_t)team.own | m.slots, m.early);
        const uint64_t epoch = epoch_read(team);
        for (uint32_t l = lane.thread; l < MESSAGES_LISTS; l += lane.threads) {
            const uint64_t count = lane_read_own(j.own(LONG_COUNT + l * 8));
            bulk_tell(bulk_word(block.word, LONG_BASE + 2 * l), (uint32_t)count);
            bulk_tell(bulk_word(block.word, LONG_BASE + 2 * l + 1), (uint32_t)(count >> 32));
        }
        lane_sync();
        if (lane_warp_any(epoch_stopped(epoch)))
            return;
        if (is_short<WHOLE>(lane, m))
            serve_short<WHOLE>(lane, team, m);
        else
            serve_long<WHOLE>(lane, team, m, j);
    }

#ifdef __CUDACC__
    template <bool WHOLE, int MOST> LANE_FN static bool is_short(const lane_t &lane, const long_messages<MOST> &)
    {
        return lane.thread / 32 >= warps(WHOLE);
    }

    template <bool WHOLE, int MOST>
    LANE_FN static void serve_short(lane_t lane, const alg_team_t &team, const long_messages<MOST> &m)
    {
        lane.thread -= warps(WHOLE) * 32;
        lane.threads -= warps(WHOLE) * 32;
        pairs_mixed::serve<MOST>(lane, team, m, (progress_t *)bulk_pointer(bulk_base() + m.kept));
    }
#else
    template <bool, int MOST> LANE_FN static bool is_short(const lane_t &lane, const long_messages<MOST> &m)
    {
        return lane.block >= m.blocks;
    }

    template <bool, int MOST>
    LANE_FN static void serve_short(lane_t lane, const alg_team_t &team, const long_messages<MOST> &m)
    {
        lane.block -= m.blocks;
        lane.blocks -= m.blocks;
        pairs_mixed::run<MOST>(lane, team, m);
    }
#endif

    template <bool WHOLE, int MOST>
    LANE_FN static void serve_long(lane_t &lane, const alg_team_t &team, const long_messages<MOST> &m,
                                   const long_job<MOST> &j)
    {
        const uint32_t in_warp = lane.thread % lane_warp_size();
        uint32_t awaited[2] = {0, 0};
        (void)m;
        typedef long_walk<LONG_OUT, MOST> out_t;
        typedef long_walk<LONG_IN, MOST> in_t;
        typedef long_gate<LONG_OUT, MOST> out_gate_t;
        typedef long_gate<LONG_IN, MOST> in_gate_t;
        out_gate_t out = out_gate_t::make(j, *j.out, lane, awaited);
        in_gate_t in = in_gate_t::make(j, *j.in, lane, awaited);
        long_loader<WHOLE, MOST> loader = {j, out_t::make(j), {}, 0};
        long_sender<WHOLE, LAG, MOST> sender = {j, out_t::make(j), {}, {}, 0, 0};
        long_herald<MOST> herald = {j, in_warp, 0};
        long_taker<MOST> taker = {j, in_t::make(j), {}, 0};
        if constexpr (WHOLE) {
            long_keeper<LAG, MOST> keeper = {j, in_t::make(j), {}, {}, 0};
            bulk_roles(lane, team, out, loader, sender, herald, in, taker, keeper);
        } else {
            long_shifter<MOST> shifter = long_shifter<MOST>::make(j, lane);
            long_plain_keeper<MOST> keeper = long_plain_keeper<MOST>::make(j, lane);
            bulk_roles(lane, team, keeper, shifter, out, loader, sender, herald, in, taker);
        }
    }
};
static_assert(((int)bulk_messages::PLAIN_WARPS + (int)bulk_messages::SHORT_WARPS) * 32 <=
                  (int)bulk_messages::MOST_THREADS,
              "a block has no room for all roles");

template <> inline constexpr uint32_t UNALIGNED_BLOCKS<bulk_messages> = BULK_UNALIGNED_BLOCKS;
template <> inline constexpr bool FILLS_MULTIPROCESSOR<bulk_messages> = true;
template <> inline constexpr bool BULK_MESSAGES<bulk_messages> = true;
template <> inline constexpr uint32_t PIECE<bulk_messages> = ALG_PIECE_RINGS;

namespace
{

#ifdef __CUDACC__
template <bool WHOLE, int MOST>
__global__ void __launch_bounds__((WHOLE ? bulk_messages::WARPS + bulk_messages::SHORT_WARPS
                                         : bulk_messages::PLAIN_WARPS + bulk_messages::SHORT_WARPS) *
                                      32,
                                  1)
    ncclKernel_shunt_messages(const __grid_constant__ alg_team_t team, const __grid_constant__ long_messages<MOST> m)
{
    bulk_messages::run<WHOLE, MOST>(lane_here(), team, m);
}
#else
template <bool WHOLE, int MOST>
static void ncclKernel_shunt_messages(lane_t lane, const alg_team_t &team, const long_messages<MOST> &m)
{
    bulk_messages::run<WHOLE, MOST>(lane, team, m);
}
#endif

/* Fills in slots and chunks; a message to this rank itself has only chunks to send. Returns WHOLE. */
template <int MOST> static bool long_fill(long_messages<MOST> &m, const message_t *list, const alg_team_t *team)
{
    bool whole = true;
    m.slots = long_slots(team->rings_bytes, m.rings, team->nranks, PAIRS_LANES, BULK_CHUNK);
    for (uint32_t l = 0, i = m.message_end[MESSAGES_LISTS - 1]; l < MESSAGES_LISTS; l++) {
        m.chunks[l] = 0;
        for (; i < m.long_end[l]; i++) {
            if (l != 2 * team->rank + MESSAGES_RECEIVE)
                m.chunks[l] += (uint32_t)long_chunks(list[i].bytes);
            whole = whole && (uintptr_t)list[i].buffer % VEC == 0;
        }
    }
    return whole;
}

#ifdef __CUDACC__

template <int MOST>
static int bulk_messages_launch(const alg_team_t *team, const alg_call_t *call, long_messages<MOST> &m,
                                const message_t *list, uint32_t items, void *stream)
{
    const bool whole = long_fill(m, list, team);
    const uint32_t shorts = items > 0 ? (uint32_t)bulk_messages::SHORT_WARPS : 0;
    int most = 0;
    const int error = bulk_most_room(&most);
    if (error != 0)
        return error;
    m.blocks = grid_blocks(call);
    const uint32_t workers = m.blocks * shorts;
    const uint32_t kept = items > 0 ? (items + workers - 1) / workers * shorts * (uint32_t)sizeof(progress_t) : 0;
    m.depth = bulk_messages::DEPTH;
    while (m.depth > (uint32_t)BULK_TURNS && bulk_shared_bytes(m.depth, BULK_STAGE, BULK_STAGE) + kept > (uint32_t)most)
        m.depth -= BULK_TURNS;
    m.kept = bulk_shared_bytes(m.depth, BULK_STAGE, BULK_STAGE);
    return launch_grid(whole ? ncclKernel_shunt_messages<true, MOST> : ncclKernel_shunt_messages<false, MOST>, team, m,
                       m.blocks, (bulk_messages::warps(whole) + shorts) * 32, m.kept + kept, stream);
}

static int bulk_messages_launch_few(const alg_team_t *team, const alg_call_t *call, void *stream)
{
    long_messages<PAIRS_FEW> m;
    const filled_t f = messages_fill(m, m.long_end, m.message, team, call, 0, PAIRS_FEW);
    return bulk_messages_launch(team, call, m, m.message, f.items, stream);
}

static int bulk_messages_launch_listed(const alg_team_t *team, const alg_call_t *call, void *stream)
{
    typedef long_messages<MESSAGES_LISTED> listed_t;
    return messages_store_and_launch<listed_t>(
        team, call, stream, [](listed_t &m) { return m.long_end; },
        [=](listed_t &m, const message_t *list, filled_t f) {
            return bulk_messages_launch(team, call, m, list, f.items, stream);
        });
}

#endif

struct bulk_messenger {
    typedef bulk_messages algorithm;
#ifdef __CUDACC__
    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        return call->message_count <= (uint32_t)PAIRS_FEW ? bulk_messages_launch_few(team, call, stream)
                                                          : bulk_messages_launch_listed(team, call, stream);
    }

    static int preload(uint32_t)
    {
        int error = bulk_preload(ncclKernel_shunt_messages<true, PAIRS_FEW>);
        if (error == 0)
            error = bulk_preload(ncclKernel_shunt_messages<false, PAIRS_FEW>);
        if (error == 0)
            error = bulk_preload(ncclKernel_shunt_messages<true, MESSAGES_LISTED>);
        if (error == 0)
            error = bulk_preload(ncclKernel_shunt_messages<false, MESSAGES_LISTED>);
        return error != 0 ? error : launch_preload(pairs_store);
    }
#else
    static constexpr part_bytes_t PART_BYTES = NULL;

    static int launch(const alg_team_t *team, const alg_call_t *call, void *)
    {
        const uint32_t blocks = grid_blocks(call), half = (blocks + 1) / 2;
        return messages_listed(team, call, [=](uint32_t begin, uint32_t share, uint32_t &done) {
            long_messages<MESSAGES_LISTED> m;
            message_t *const list = messages_list(*team);
            m.message = list;
            const filled_t f = messages_fill(m, m.long_end, list, team, call, begin, share);
            const bool whole = long_fill(m, list, team);
            m.blocks = half;
            m.depth = bulk_messages::DEPTH;
            m.kept = 0;
            done = f.messages;
            return launch_threads(whole ? ncclKernel_shunt_messages<true, MESSAGES_LISTED>
                                        : ncclKernel_shunt_messages<false, MESSAGES_LISTED>,
                                  team, m, half + (f.items < half ? f.items : half), false, 0);
        });
    }
#endif
};

} // namespace

ALG_ENTRIES(alg_bulk_messages, bulk_messenger)
ALG_DESCRIBE(alg_sendrecv_bulk, "bulk", ALG_SEND_RECV, ALG_MEMORY_PEER, alg_bulk_messages)
