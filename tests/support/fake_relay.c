/* SPDX-License-Identifier: Apache-2.0 */
/* In place of algorithms/nodes/: relays that connect and pass nothing on. */
#include <errno.h>
#include <stdlib.h>

#include "fake_relay.h"

enum { WINDOW = 64 };

int fake_relay_error;

struct alg_relay {
    net_network_t *network;
    uint32_t node, nodes;
    uint64_t flags[ALG_MAX_RANKS];
    uint8_t windows[ALG_MAX_RANKS * WINDOW];
};

int alg_relay_create(alg_device_t device, int ordinal, uint32_t node, uint32_t nodes, alg_relay_t **relay)
{
    (void)device;
    (void)ordinal;
    *relay = calloc(1, sizeof(**relay));
    if (!*relay)
        return -ENOMEM;
    (*relay)->node = node;
    (*relay)->nodes = nodes;
    return 0;
}

net_landing_t alg_relay_landing(const alg_relay_t *relay)
{
    alg_relay_t *own = (alg_relay_t *)(uintptr_t)relay;
    return (net_landing_t){.windows = own->windows, .window_bytes = WINDOW, .flags = own->flags};
}

int alg_relay_connected(alg_relay_t *relay, net_network_t *network)
{
    if (fake_relay_error == 0)
        relay->network = network;
    return fake_relay_error;
}

void alg_relay_serve(alg_relay_t *relay, alg_team_t *team, alg_control_t *control)
{
    (void)control;
    team->node = relay->node;
    team->nodes = relay->nodes;
}

void alg_relay_call(alg_relay_t *relay, const alg_team_t *team, const alg_call_t *call, bool captured)
{
    (void)relay;
    (void)team;
    (void)call;
    (void)captured;
}

const char *alg_relay_fault(const alg_relay_t *relay)
{
    (void)relay;
    return NULL;
}

const char *alg_nodes_fault(const alg_nodes_t *nodes)
{
    (void)nodes;
    return NULL;
}

void alg_relay_flush(alg_relay_t *relay)
{
    (void)relay;
}

void alg_relay_destroy(alg_relay_t *relay)
{
    if (relay && relay->network)
        net_network_close(relay->network);
    free(relay);
}

/* A stub, since the CPU device is not linked. */
void alg_nodes_destroy(alg_nodes_t *nodes)
{
    (void)nodes;
}

int alg_nodes_create(uint32_t rank, uint32_t nranks, alg_nodes_t **nodes)
{
    (void)rank;
    (void)nranks;
    (void)nodes;
    return -ENOSYS;
}

net_landing_t alg_nodes_landing(const alg_nodes_t *nodes)
{
    (void)nodes;
    return (net_landing_t){0};
}

void alg_nodes_connected(alg_nodes_t *nodes, net_network_t *network)
{
    (void)nodes;
    (void)network;
}

void alg_nodes_serve(alg_nodes_t *nodes, alg_team_t *team)
{
    (void)nodes;
    (void)team;
}
