/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the one export: the table of service.h. */
#include "shim/experts/group.h"

__attribute__((visibility("default"))) const shim_experts_service_t *shuntExperts(uint32_t version)
{
    static const shim_experts_service_t service = {.version = SHIM_EXPERTS_VERSION,
                                                   .create = shim_experts_create,
                                                   .destroy = shim_experts_destroy,
                                                   .handle_bytes = shim_experts_handle_bytes,
                                                   .handle_create = shim_experts_handle_create,
                                                   .handle_update = shim_experts_handle_update,
                                                   .handle_destroy = shim_experts_handle_destroy,
                                                   .dispatch = shim_experts_dispatch,
                                                   .combine = shim_experts_combine,
                                                   .complete = shim_experts_complete};
    return version == SHIM_EXPERTS_VERSION ? &service : NULL;
}
