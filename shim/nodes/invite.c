/* SPDX-License-Identifier: Apache-2.0 */
/* invite.c - whether and where ranks of several nodes meet. */
#include "shim/nodes/invite.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "shim/base/device.h"
#include "shim/base/log.h"
#include "shim/base/nccl_env.h"
#include "shim/base/settings.h"

enum { INVITATION_AT = sizeof(ncclUniqueId) - SHIM_INVITATION_BYTES };
_Static_assert((int)sizeof(net_invitation_t) == (int)SHIM_INVITATION_BYTES, "an invitation has another size");

static atomic_bool g_alone;
static atomic_bool g_told; /* a bad NCCL_SOCKET_IFNAME was logged */
static atomic_bool g_encrypted;

void shim_nodes_encrypt(void)
{
    atomic_store(&g_encrypted, true);
}

/* After a time-out later set-ups do not wait for other nodes. The first rank to time out leaves, which the others see
 * as -ESRCH. */
void shim_invite_note(int error)
{
    if (error == -ETIMEDOUT || error == -ESRCH || error == -EHOSTUNREACH)
        atomic_store(&g_alone, true);
}

net_interfaces_t shim_invite_interfaces(void)
{
    return (net_interfaces_t){shim_nccl_env("NCCL_SOCKET_IFNAME"), shim_nccl_env("NCCL_SOCKET_FAMILY")};
}

static bool has_rdma(void)
{
    DIR *folder = opendir("/sys/class/infiniband");
    bool any = false;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        any = any || entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return any;
}

/* True for "allreduce:exchange", false for "^exchange". */
static bool wants_exchange(void)
{
    const char *algo = shim_settings()->algo, *name = strstr(algo, "exchange");
    return name && (name == algo || name[-1] != '^');
}

/* Whether Shunt takes communicators of several nodes (docs/nodes.md): not where NCCL may use RDMA or a plugin, which
 * may be faster, unless SHUNT_ALGO asks for it. */
static bool takes_nodes(void)
{
    if (wants_exchange())
        return true;
    if (shim_nccl_env_names_something("NCCL_NET"))
        return shim_nccl_env_is("NCCL_NET", "Socket");
    return !shim_nccl_plugin_loaded("libnccl-net.so") && !shim_nccl_env_names_something("NCCL_NET_PLUGIN") &&
           (shim_nccl_env_is_on("NCCL_IB_DISABLE") || !has_rdma());
}

bool shim_nodes_refuses(shim_why_t *why)
{
    why->reason = SEL_TAKEN;
    if (atomic_load(&g_encrypted))
        shim_why_write(why, SHIM_WHY(ENCRYPTED));
    else if (!takes_nodes())
        shim_why_write(why, SHIM_WHY(FAST_NODES));
    else if (atomic_load(&g_alone))
        shim_why_write(why, SHIM_WHY(NODES_ALONE));
    return why->reason != SEL_TAKEN;
}

void shim_nodes_invite(ncclUniqueId *id)
{
    static const net_invitation_t empty;
    net_invitation_t invitation;
    const net_interfaces_t wanted = shim_invite_interfaces();
    if (!shim_settings()->listen || atomic_load(&g_encrypted) || (!shim_cpu_mode() && !takes_nodes()))
        return;
    if (memcmp(id->internal + INVITATION_AT, &empty, sizeof(empty)) != 0)
        return;
    int error = net_invite(&wanted, &invitation);
    if (error == -ENODEV && wanted.names && !atomic_exchange(&g_told, true))
        shim_warn("NCCL_SOCKET_IFNAME=%.100s names no interface that is up and has an address here, so only ranks of "
                  "one node can meet; name one of `ip -brief address`",
                  wanted.names);
    else if (error)
        shim_info("no listener for this unique id (%s), so only ranks of one node can meet; check NCCL_SOCKET_IFNAME",
                  strerror(-error));
    else
        memcpy(id->internal + INVITATION_AT, &invitation, sizeof(invitation));
}

net_invitation_t shim_invite_open(const shim_invitation_t *invitation)
{
    net_invitation_t opened;
    memcpy(&opened, invitation->bytes, sizeof(opened));
    return opened;
}

shim_invitation_t shim_nodes_invitation(const ncclUniqueId *ids, int count)
{
    shim_invitation_t invitation = {0};
    for (int i = 0; i < count && !invitation.given; i++) {
        memcpy(invitation.bytes, ids[i].internal + INVITATION_AT, sizeof(invitation.bytes));
        const net_invitation_t opened = shim_invite_open(&invitation);
        invitation.given = net_invitation_valid(&opened);
    }
    return invitation;
}

net_key_t shim_nodes_local_key(const net_key_t *key)
{
    const char *name = shim_nccl_env("NCCL_HOSTID");
    if (!name)
        return *key;
    const struct {
        net_key_t key, node;
    } whole = {*key, net_key_hash(name, strlen(name))};
    return net_key_hash(&whole, sizeof(whole));
}
