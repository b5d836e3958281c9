/* SPDX-License-Identifier: Apache-2.0 */
/* interface.c - which address of this node other nodes get. Unless NCCL's variables decide, interfaces to other nodes
 * come first, then container bridges, interfaces without a link, and loopback (for "nodes" on one machine). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "transport/network/names.h"
#include "transport/network/network.h"

/* As in NCCL, a port after a name is ignored: "lo:0". */
static bool listed(const char *list, bool whole, const char *name)
{
    while (*list) {
        const size_t length = strcspn(list, ",:");
        if (length > 0 && strncmp(name, list, length) == 0 && (!whole || name[length] == '\0'))
            return true;
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return false;
}

static bool is_wanted(const char *list, const char *name)
{
    if (!list || !*list)
        return true;
    bool excluded, whole;
    list = names_of(list, &excluded, &whole);
    return listed(list, whole, name) != excluded;
}

/* Lower is better. */
static int rank_of(const struct ifaddrs *one)
{
    if (one->ifa_flags & IFF_LOOPBACK)
        return 4;
    if (!(one->ifa_flags & IFF_RUNNING)) /* no link, or the interface's first second */
        return 3;
    if (listed("docker,veth,virbr,br-,cni,flannel", false, one->ifa_name))
        return 2;
    return listed("ib", false, one->ifa_name) ? 0 : 1;
}

static bool read_address(const struct ifaddrs *one, net_address_t *address)
{
    memset(address, 0, sizeof(*address));
    if (!one->ifa_addr || !(one->ifa_flags & IFF_UP))
        return false;
    address->family = one->ifa_addr->sa_family;
    if (address->family == AF_INET) {
        memcpy(address->ip, &((const struct sockaddr_in *)(const void *)one->ifa_addr)->sin_addr, 4);
        return true;
    }
    if (address->family != AF_INET6)
        return false;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)one->ifa_addr;
    memcpy(address->ip, &six->sin6_addr, sizeof(address->ip));
    address->scope = six->sin6_scope_id;
    return !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
}

static bool right_family(const char *wanted, const net_address_t *address)
{
    if (!wanted || (strcmp(wanted, "AF_INET") != 0 && strcmp(wanted, "AF_INET6") != 0))
        return true;
    return (address->family == AF_INET6) == (strcmp(wanted, "AF_INET6") == 0);
}

int net_address_own(const net_interfaces_t *wanted, net_address_t *address)
{
    struct ifaddrs *all;
    net_address_t best;
    int best_rank = -1;
    if (getifaddrs(&all) != 0)
        return -errno;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        net_address_t found;
        if (!is_wanted(wanted->names, one->ifa_name) || !read_address(one, &found) ||
            !right_family(wanted->family, &found))
            continue;
        /* IPv4 first, since it is set up everywhere */
        const int rank = 2 * rank_of(one) + (found.family == AF_INET6);
        if (best_rank < 0 || rank < best_rank) {
            best_rank = rank;
            best = found;
        }
    }
    freeifaddrs(all);
    if (best_rank < 0)
        return -ENODEV;
    *address = best;
    return 0;
}

void net_address_write(const net_address_t *address, char text[NET_ADDRESS_TEXT])
{
    char ip[INET6_ADDRSTRLEN] = "?";
    inet_ntop(address->family, address->ip, ip, sizeof(ip));
    snprintf(text, NET_ADDRESS_TEXT, address->family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip, address->port);
}
