/* SPDX-License-Identifier: Apache-2.0 */
/* In place of algorithms/multihost/: relays that connect and pass nothing on. */
#include <errno.h>
#include <stdlib.h>

#include "fake_relay.h"

enum { WINDOW = 64 };

int fake_relay_error;

struct alg_relay {
    net_network_t *network;
    uint32_t host, hosts;
    uint64_t flags[ALG_MAX_RANKS];
    uint8_t windows[ALG_MAX_RANKS * WINDOW];
};

int alg_relay_create(alg_device_t device, int ordinal, uint32_t host, uint32_t hosts, alg_relay_t **relay)
{
    (void)device;
    (void)ordinal;
    *relay = calloc(1, sizeof(**relay));
    if (!*relay)
        return -ENOMEM;
    (*relay)->host = host;
    (*relay)->hosts = hosts;
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
    team->host = relay->host;
    team->hosts = relay->hosts;
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

const char *alg_hosts_fault(const alg_hosts_t *hosts)
{
    (void)hosts;
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

/* A stub, since the host device is not linked. */
void alg_hosts_destroy(alg_hosts_t *hosts)
{
    (void)hosts;
}

int alg_hosts_create(uint32_t rank, uint32_t nranks, alg_hosts_t **hosts)
{
    (void)rank;
    (void)nranks;
    (void)hosts;
    return -ENOSYS;
}

net_landing_t alg_hosts_landing(const alg_hosts_t *hosts)
{
    (void)hosts;
    return (net_landing_t){0};
}

void alg_hosts_connected(alg_hosts_t *hosts, net_network_t *network)
{
    (void)hosts;
    (void)network;
}

void alg_hosts_serve(alg_hosts_t *hosts, alg_team_t *team)
{
    (void)hosts;
    (void)team;
}
