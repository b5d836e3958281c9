/* SPDX-License-Identifier: Apache-2.0 */
/* key.h - keys that follow from a communicator's. */
#ifndef SHUNT_SHIM_KEY_H
#define SHUNT_SHIM_KEY_H

#include "transport/transport.h"

/* `tag`: what meets under the key; `number`: which of them. */
static inline net_key_t shim_key_child(const net_key_t *parent, uint64_t tag, uint64_t number)
{
    const struct {
        net_key_t parent;
        uint64_t tag, number;
    } whole = {*parent, tag, number};
    return net_key_hash(&whole, sizeof(whole));
}

#endif
