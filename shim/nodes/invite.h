/* SPDX-License-Identifier: Apache-2.0 */
/* invite.h - how this process meets other nodes, for this folder only. */
#ifndef SHUNT_SHIM_INVITE_H
#define SHUNT_SHIM_INVITE_H

#include "shim/nodes/nodes.h"
#include "transport/network/network.h"

net_interfaces_t shim_invite_interfaces(void);
net_invitation_t shim_invite_open(const shim_invitation_t *invitation);
void shim_invite_note(int error);

#endif
