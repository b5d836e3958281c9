/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_hca.c - NCCL_IB_HCA: for any list a device's port is accepted exactly if a model that splits the list first
 * accepts it; "^" inverts the answer, and no byte after the list is read.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "transport/network/verbs_port.c"

enum { MOST_PORTS = 3 };

/* Whether an item, which is modified, matches: NAME or NAME:PORT; a PORT that begins with no digit means any. */
static bool item_has(char *item, bool whole_names, const char *device, uint32_t port)
{
    char *colon = strchr(item, ':');
    if (colon)
        *colon++ = '\0';
    const bool same = whole_names ? strcmp(item, device) == 0 : strstr(device, item) == device;
    const bool any_port = !colon || *colon < '0' || *colon > '9';
    return *item && same && (any_port || strtoull(colon, NULL, 10) == port);
}

static bool model(const char *list, const char *device, uint32_t port)
{
    const bool turned = *list == '^', whole_names = list[turned] == '=';
    char *items = strdup(list + turned + whole_names), *rest = items;
    bool has = false;
    const bool empty = !*items;
    for (char *item; (item = strsep(&rest, ","));)
        has = item_has(item, whole_names, device, port) || has;
    free(items);
    return empty || has != turned;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const devices[] = {"mlx5_0", "mlx5_1", "mlx5_10", "rxe0", "m", ""};
    char *list = malloc(size + 1);
    memcpy(list, data, size);
    list[size] = '\0';
    for (size_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++)
        for (uint32_t port = 1; port <= MOST_PORTS; port++)
            if (is_wanted(list, devices[d], port) != model(list, devices[d], port))
                abort();
    free(list);
    return 0;
}
