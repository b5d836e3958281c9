/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_port.c - selects a rank's port, the nearest to its GPU of the active ones that NCCL_IB_HCA names, and its
 * address (GID), by NCCL's rules. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/network/names.h"
#include "transport/network/verbs_queue.h"

enum { COMPLETIONS = NET_PUTS * NET_NETWORK_RANKS };

static bool listed(const char *list, bool whole, const char *device, uint32_t port)
{
    while (*list) {
        const size_t length = strcspn(list, ","), name = strcspn(list, ":,");
        const char *number = name < length ? list + name + 1 : "";
        const bool same = strncmp(device, list, name) == 0 && (!whole || device[name] == '\0');
        if (name > 0 && same && (*number < '0' || *number > '9' || strtoul(number, NULL, 10) == port))
            return true;
        list += length + (list[length] == ',');
    }
    return false;
}

static bool is_wanted(const char *list, const char *device, uint32_t port)
{
    if (!list || !*list)
        return true;
    bool excluded, whole;
    list = names_of(list, &excluded, &whole);
    return !*list || listed(list, whole, device, port) != excluded;
}

/* lower is better */
static uint32_t distance_of(const net_rdma_t *wanted, const char *device, uint32_t port)
{
    uint32_t i = 0;
    while (i < wanted->nearest_count &&
           (wanted->nearest[i].port != port || strcmp(wanted->nearest[i].device, device) != 0))
        i++;
    return i;
}

static int query_port(const verbs_calls_t *calls, struct ibv_context *context, uint8_t port,
                      struct ibv_port_attr *attributes)
{
    memset(attributes, 0, sizeof(*attributes)); /* the call sets only the fields that all versions have */
    return (calls->query_port)(context, port, (struct _compat_ibv_port_attr *)(void *)attributes);
}

static bool is_four(const union ibv_gid *gid)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(gid->raw, mapped, sizeof(mapped)) == 0;
}

static bool is_link_local(const union ibv_gid *gid)
{
    return gid->raw[0] == 0xfe && gid->raw[1] == 0x80;
}

/* lower is better */
static int rank_of_gid(const struct ibv_gid_entry *entry)
{
    if (entry->gid_type != IBV_GID_TYPE_ROCE_V2)
        return 3;
    return is_four(&entry->gid) ? 0 : is_link_local(&entry->gid) ? 2 : 1;
}

/* Chooses an address: InfiniBand's first; RoCE's by the user, else the best. */
static int choose_gid(verbs_t *verbs, int wanted)
{
    struct ibv_gid_entry entry;
    int best = -1;
    const bool by_name = wanted >= 0 && verbs->attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    const bool first = verbs->attributes.link_layer == IBV_LINK_LAYER_INFINIBAND;
    for (int i = by_name ? wanted : 0; i < verbs->attributes.gid_tbl_len; i++) {
        if (verbs->calls->query_gid(verbs->context, verbs->port, (uint32_t)i, &entry, 0, sizeof(entry)) == 0) {
            const int rank = rank_of_gid(&entry);
            if (best < 0 || rank < best) {
                best = rank;
                verbs->gid_index = i;
                verbs->gid = entry.gid;
            }
        }
        if (by_name || first)
            break;
    }
    return best < 0 ? -ENOENT : 0;
}

typedef struct search {
    verbs_t *verbs;
    const net_rdma_t *wanted;
    uint32_t distance;
    uint32_t active;
} search_t;

/* Keeps the best port so far, with its context; closes the other context. */
static void look_at_device(search_t *search, struct ibv_device *device)
{
    verbs_t *verbs = search->verbs;
    const verbs_calls_t *calls = verbs->calls;
    struct ibv_device_attr attributes;
    struct ibv_context *context = calls->open_device(device), *old = verbs->context;
    if (!context)
        return;
    const int ports = calls->query_device(context, &attributes) == 0 ? attributes.phys_port_cnt : 0;
    for (int p = 1; p <= ports; p++) {
        struct ibv_port_attr port;
        if (query_port(calls, context, (uint8_t)p, &port) != 0 || port.state != IBV_PORT_ACTIVE ||
            (port.link_layer != IBV_LINK_LAYER_INFINIBAND && port.link_layer != IBV_LINK_LAYER_ETHERNET))
            continue;
        search->active++;
        if (!is_wanted(search->wanted->devices, device->name, (uint32_t)p))
            continue;
        const uint32_t distance = distance_of(search->wanted, device->name, (uint32_t)p);
        if (verbs->context && distance >= search->distance)
            continue;
        search->distance = distance;
        verbs->context = context;
        verbs->port = (uint8_t)p;
        verbs->attributes = port;
        snprintf(verbs->way, sizeof(verbs->way), "%.30s:%d", device->name, p);
    }
    if (verbs->context != context)
        calls->close_device(context);
    else if (old)
        calls->close_device(old);
}

static bool find_port(verbs_t *verbs, const net_rdma_t *wanted, char why[NET_WAY_TEXT])
{
    search_t search = {.verbs = verbs, .wanted = wanted};
    int count = 0;
    struct ibv_device **devices = (verbs->calls->get_device_list)(&count);
    for (int d = 0; devices && d < count; d++) {
        /* iWARP connects differently; other transports are not reliable */
        if (devices[d]->transport_type == IBV_TRANSPORT_IB)
            look_at_device(&search, devices[d]);
    }
    if (devices)
        verbs->calls->free_device_list(devices);
    if (verbs->context)
        return true;
    if (search.active == 0)
        snprintf(why, NET_WAY_TEXT, "no active RDMA port");
    else
        snprintf(why, NET_WAY_TEXT, "NCCL_IB_HCA leaves none of %u active RDMA ports", search.active);
    return false;
}

static int fail(verbs_t *verbs, const char *what, char why[NET_WAY_TEXT])
{
    const int error = errno ? -errno : -EIO;
    snprintf(why, NET_WAY_TEXT, "%s: %s: %.40s", verbs->way, what, strerror(-error));
    verbs_close(verbs);
    return error;
}

int verbs_open(const net_rdma_t *wanted, verbs_t **verbs, char way[NET_WAY_TEXT])
{
    const verbs_calls_t *calls = verbs_calls(wanted->library, way);
    if (!calls)
        return -ENOENT;
    verbs_t *made = calloc(1, sizeof(*made));
    if (!made) {
        snprintf(way, NET_WAY_TEXT, "no memory");
        return -ENOMEM;
    }
    made->calls = calls;
    made->process = getpid();
    made->service_level = wanted->service_level;
    made->traffic_class = wanted->traffic_class;
    made->pkey_index = wanted->pkey_index;
    made->timeout = wanted->timeout;
    made->retries = wanted->retries;
    if (!find_port(made, wanted, way)) {
        free(made);
        return -ENODEV;
    }
    errno = 0;
    if (choose_gid(made, wanted->gid_index) != 0)
        return fail(made, "no such address (NCCL_IB_GID_INDEX)", way);
    made->pd = calls->alloc_pd(made->context);
    if (!made->pd)
        return fail(made, "no protection domain", way);
    made->cq = calls->create_cq(made->context, COMPLETIONS, NULL, NULL, 0);
    if (!made->cq)
        return fail(made, "no completion queue", way);
    *verbs = made;
    return 0;
}
