/* SPDX-License-Identifier: Apache-2.0 */
/* fake_scope.c - transport/cuda_scope.c for fake devices: there is no context, and each scope that was entered is left.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "transport/transport.h"

int net_cuda_errno(int error)
{
    return error == 0 ? 0 : error == cudaErrorMemoryAllocation ? -ENOMEM : -EAGAIN;
}

int net_scope_enter(net_scope_t *scope, int device)
{
    (void)device;
    scope->entered = true;
    return 0;
}

void net_scope_leave(net_scope_t *scope)
{
    assert_true(scope->entered);
    scope->entered = false;
}
