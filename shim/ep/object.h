/* SPDX-License-Identifier: Apache-2.0 */
/* object.h - the groups and handles that programs hold: this library's own objects around Shunt's service or NVIDIA's
 * library, never both. Every call checks an object's magic word. A destroyed object is not freed but reused: until then
 * a call with it is refused. A destroyed group stays until its last handle is destroyed. */
#ifndef SHUNT_SHIM_EP_OBJECT_H
#define SHUNT_SHIM_EP_OBJECT_H

#include <stdbool.h>

#include "shim/ep/real.h"
#include "shim/experts/service.h"

typedef struct shim_ep_object {
    uint64_t magic; /* 0: destroyed */
    struct shim_ep_object *next;
} shim_ep_object_t;

struct ncclEpGroup {
    shim_ep_object_t object;
    const shim_experts_service_t *service; /* NULL: forwarded */
    shim_experts_group_t *served;
    ncclEpGroup_t real;       /* NVIDIA's */
    _Atomic uint32_t holders; /* the program, and each handle */
};

struct ncclEpHandle {
    shim_ep_object_t object;
    ncclEpGroup_t group;
    shim_experts_handle_t *served;
    ncclEpHandle_t real; /* NVIDIA's */
};

/* Make an object, 0 except for the magic word and a group's `holders` (1). A handle holds its group. NULL: no
 * memory. */
ncclEpGroup_t shim_ep_group_make(void);
ncclEpHandle_t shim_ep_handle_make(ncclEpGroup_t group);
/* False: NULL, a foreign pointer or a destroyed object. */
bool shim_ep_group_is_valid(ncclEpGroup_t group);
bool shim_ep_handle_is_valid(ncclEpHandle_t handle);
/* Make the object invalid. The group's last holder destroys the service's or NVIDIA's group and returns that result. */
ncclResult_t shim_ep_group_end(ncclEpGroup_t group);
ncclResult_t shim_ep_handle_end(ncclEpHandle_t handle);

#endif
