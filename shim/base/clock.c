/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/base/clock.h"

#include "transport/transport.h"

uint64_t shim_now_ns(void)
{
    return net_now_ns();
}
