/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk_move.cu - all-gather and all-to-all by bulk copies (move.h).
 */
#include "algorithms/bulk/move.h"

namespace
{

/* A mover (device/launch.h). */
struct bulk_mover {
    typedef bulk_move algorithm;
#ifndef __CUDACC__
    static constexpr part_bytes_t PART_BYTES = NULL;
#endif

    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        return bulk_launch_move(team, kernel_call_make_bytes(*call), stream);
    }

    static int preload(void)
    {
        const int error = move_kernels_each<bulk_move, kernel_call_t, false>(bulk_preload<kernel_call_t>);
        return error != 0 ? error : move_kernels_each<bulk_move, kernel_call_t, true>(bulk_preload<kernel_call_t>);
    }
};

} // namespace

ALG_ENTRIES(alg_bulk_move, bulk_mover)
ALG_DESCRIBE(alg_allgather_bulk, "bulk", ALG_ALL_GATHER, ALG_MEMORY_PEER, alg_bulk_move)
ALG_DESCRIBE(alg_alltoall_bulk, "bulk", ALG_ALL_TO_ALL, ALG_MEMORY_PEER, alg_bulk_move)
