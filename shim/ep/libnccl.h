/* SPDX-License-Identifier: Apache-2.0 */
/* libnccl.h - what this library takes from the process's libnccl.so.2, if that is Shunt's. It may be loaded later than
 * this library: the answers may change once, from none. */
#ifndef SHUNT_SHIM_EP_LIBNCCL_H
#define SHUNT_SHIM_EP_LIBNCCL_H

#include "shim/experts/service.h"

/* NULL: no Shunt, or one of another build. */
const shim_experts_service_t *shim_ep_service(void);
/* A setting from any source that Shunt reads; without Shunt, the environment's. Never NULL. */
const char *shim_ep_setting(const char *name);

#endif
