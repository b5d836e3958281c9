/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h - what the kernels' files give to experts.c, which is C. */
#ifndef SHUNT_EXPERTS_PARTS_H
#define SHUNT_EXPERTS_PARTS_H

#include "algorithms/experts/experts.h"

#ifdef __cplusplus
extern "C" {
#endif

uint64_t alg_experts_room_bytes(const alg_experts_shape_t *shape);

int alg_experts_dispatch_cpu(const alg_team_t *team, const alg_experts_shape_t *shape, const alg_experts_call_t *call);
int alg_experts_combine_cpu(const alg_team_t *team, const alg_experts_shape_t *shape, const alg_experts_call_t *call);
int alg_experts_dispatch_cuda(const alg_team_t *team, const alg_experts_shape_t *shape, const alg_experts_call_t *call,
                              void *stream);
int alg_experts_combine_cuda(const alg_team_t *team, const alg_experts_shape_t *shape, const alg_experts_call_t *call,
                             void *stream);
int alg_experts_dispatch_preload(const alg_experts_shape_t *shape, const alg_experts_call_t *most);
int alg_experts_combine_preload(const alg_experts_shape_t *shape, const alg_experts_call_t *most);

#ifdef __cplusplus
}
#endif
#endif
