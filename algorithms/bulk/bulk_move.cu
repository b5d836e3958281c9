/* SPDX-License-Identifier: Apache-2.0 */
/* bulk_move.cu - all-gather and all-to-all by bulk copies (move.h). */
#include "algorithms/bulk/move.h"

namespace
{

struct bulk_mover {
    typedef bulk_move algorithm;
#ifndef __CUDACC__
    static constexpr part_bytes_t PART_BYTES = NULL;
#endif

    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        const kernel_call_t all = kernel_call_make_bytes(*call);
        return route_input_has_blocks(call->collective) ? bulk_launch_move<true>(team, all, stream)
                                                        : bulk_launch_move<false>(team, all, stream);
    }

    static int preload(uint32_t nranks)
    {
        const int error = bulk_preload_moves<false>(nranks);
        return error != 0 ? error : bulk_preload_moves<true>(nranks);
    }
};

} // namespace

ALG_ENTRIES(alg_bulk_move, bulk_mover)
ALG_DESCRIBE(alg_allgather_bulk, "bulk", ALG_ALL_GATHER, ALG_MEMORY_PEER, alg_bulk_move)
ALG_DESCRIBE(alg_alltoall_bulk, "bulk", ALG_ALL_TO_ALL, ALG_MEMORY_PEER, alg_bulk_move)
