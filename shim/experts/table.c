/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the one export: the table of service.h. */
#include "shim/experts/group.h"

__attribute__((visibility("default"))) const shim_experts_service_t *shuntExperts(uint32_t version)
{
    static const shim_experts_service_t service = {.version = SHIM_EXPERTS_VERSION,
#define SHIM_EXPERTS_CALL(name) .name = shim_experts_##name,
                                                   SHIM_EXPERTS_CALLS(SHIM_EXPERTS_CALL)};
    return version == SHIM_EXPERTS_VERSION ? &service : NULL;
}
