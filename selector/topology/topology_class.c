/* SPDX-License-Identifier: Apache-2.0 */
/* topology_class.c - a communicator's class, and the fingerprint of its machine. */
#include "selector/topology/topology.h"

#include <stdio.h>
#include <string.h>

const char *sel_link_text(sel_link_t link)
{
    static const char *const text[SEL_LINK_COUNT] = {
        [SEL_LINK_CPU] = "host",        [SEL_LINK_NVSWITCH] = "nvswitch", [SEL_LINK_MESH] = "mesh",
        [SEL_LINK_BRIDGES] = "bridges", [SEL_LINK_PCIE] = "pcie",         [SEL_LINK_PHB] = "phb",
        [SEL_LINK_SYS] = "sys",         [SEL_LINK_NETWORK] = "network"};
    return (unsigned)link < SEL_LINK_COUNT ? text[link] : "?";
}

bool sel_link_on_cpu(sel_link_t link)
{
    return link == SEL_LINK_CPU || link == SEL_LINK_NETWORK;
}

#define SHM "shm"
#define NETWORK "network"

/* Figures that a class omits: A100, H100 and H200, B200 on HGX boards (NVIDIA's data sheets). */
typedef struct usual {
    uint32_t arch, multiprocessors, lanes;
} usual_t;
static const usual_t USUAL[] = {{80, 108, 12}, {90, 132, 18}, {100, 148, 18}};

static usual_t usual_of(uint32_t arch)
{
    for (size_t i = 0; i < sizeof USUAL / sizeof USUAL[0]; i++) {
        if (USUAL[i].arch == arch)
            return USUAL[i];
    }
    return (usual_t){0};
}

/* Writes "-m78-l8", or only its unusual part. A mesh's class always has its links. */
static void name_unusual(const sel_topology_t *topology, char *out, size_t capacity)
{
    const usual_t usual = usual_of(topology->arch);
    const bool nvlink = topology->link == SEL_LINK_NVSWITCH || topology->link == SEL_LINK_MESH;
    const uint32_t lanes = topology->link == SEL_LINK_NVSWITCH ? usual.lanes : 0;
    int used = 0;
    out[0] = '\0';
    if (!nvlink || topology->memory != ALG_MEMORY_PEER)
        return;
    if (topology->multiprocessors && topology->multiprocessors != usual.multiprocessors)
        used = snprintf(out, capacity, "-m%u", topology->multiprocessors);
    if (topology->lanes && topology->lanes != lanes)
        snprintf(out + used, capacity - (size_t)used, "-l%u", topology->lanes);
}

void sel_topology_class(const sel_topology_t *topology, char out[SEL_CLASS_BYTES])
{
    char unusual[16]; /* at most 999 multiprocessors and 99 links fit the name */
    name_unusual(topology, unusual, sizeof unusual);
    if (sel_link_on_cpu(topology->link))
        snprintf(out, SEL_CLASS_BYTES, "%s-%u", sel_link_text(topology->link), topology->nranks);
    else if (topology->memory == ALG_MEMORY_NETWORK)
        snprintf(out, SEL_CLASS_BYTES, NETWORK "-sm%u-%ux%u", topology->arch, topology->nodes,
                 sel_team_ranks(topology));
    else
        snprintf(out, SEL_CLASS_BYTES, "%s-sm%u%s-%u%s%s",
                 topology->memory == ALG_MEMORY_PINNED ? SHM : sel_link_text(topology->link), topology->arch, unusual,
                 topology->nranks, topology->peers ? "-p2p" : "", topology->multicast ? "-mc" : "");
}

static bool parse_nodes(const char *class, sel_topology_t *topology)
{
    uint32_t arch, nodes, each;
    char again[SEL_CLASS_BYTES];
    if (sscanf(class, NETWORK "-sm%3u-%1ux%1u", &arch, &nodes, &each) != 3 || nodes == 0 || each == 0)
        return false;
    const sel_topology_t one = {
        .link = SEL_LINK_SYS, .memory = ALG_MEMORY_NETWORK, .nranks = nodes * each, .nodes = nodes, .arch = arch};
    sel_topology_class(&one, again);
    if (strcmp(again, class) != 0)
        return false;
    *topology = one;
    return true;
}

/* "-m78-l8-4" */
static void parse_numbers(const char *text, sel_topology_t *topology)
{
    int used = 0;
    if (sscanf(text, "-m%3u%n", &topology->multiprocessors, &used) == 1)
        text += used;
    if (sscanf(text, "-l%2u%n", &topology->lanes, &used) == 1)
        text += used;
    sscanf(text, "-%3u", &topology->nranks);
}

bool sel_topology_parse(const char *class, sel_topology_t *topology)
{
    if (parse_nodes(class, topology))
        return true;
    for (int link = SEL_LINK_CPU; link <= SEL_LINK_COUNT; link++) {
        const bool shm = link == SEL_LINK_COUNT;
        const char *name = shm ? SHM : sel_link_text((sel_link_t)link);
        const size_t bytes = strlen(name);
        sel_topology_t one = {.link = shm ? SEL_LINK_SYS : (sel_link_t)link,
                              .memory = shm ? ALG_MEMORY_PINNED : ALG_MEMORY_PEER};
        int used = 0;
        if (strncmp(class, name, bytes) != 0)
            continue;
        if (sel_link_on_cpu(one.link))
            sscanf(class + bytes, "-%3u", &one.nranks);
        else if (sscanf(class + bytes, "-sm%3u%n", &one.arch, &used) == 1)
            parse_numbers(class + bytes + used, &one);
        one.multicast = !sel_link_on_cpu(one.link) && strstr(class, "-mc");
        one.peers = shm && strstr(class, "-p2p");
        char again[SEL_CLASS_BYTES]; /* rejects trailing text, and the signs that sscanf accepts */
        sel_topology_class(&one, again);
        if (strcmp(again, class) == 0) {
            *topology = one;
            return true;
        }
    }
    return false;
}

static sel_link_t over_pcie(sel_reach_t reach)
{
    return reach.link >= SEL_LINK_PCIE ? reach.link : reach.far;
}

sel_reach_t sel_reach_join(sel_reach_t a, sel_reach_t b)
{
    if (a.link == b.link && a.link != SEL_LINK_BRIDGES && (a.lanes == b.lanes || b.lanes == 0))
        return a;
    if (a.link == b.link && a.link != SEL_LINK_BRIDGES && a.lanes == 0)
        return b;
    if (a.link < SEL_LINK_PCIE || b.link < SEL_LINK_PCIE) {
        const sel_link_t far_a = over_pcie(a), far_b = over_pcie(b);
        return (sel_reach_t){SEL_LINK_BRIDGES, 0, far_a > far_b ? far_a : far_b};
    }
    return a.link > b.link ? a : b;
}

/* FNV-1a, over bytes in one order on all machines. */
#define FNV_START UINT64_C(0xcbf29ce484222325)

static uint64_t hash_byte(uint64_t hash, uint8_t byte)
{
    return (hash ^ byte) * UINT64_C(0x100000001b3);
}

static uint64_t hash_word(uint64_t hash, uint64_t word)
{
    for (int i = 0; i < 8; i++)
        hash = hash_byte(hash, (uint8_t)(word >> 8 * i));
    return hash;
}

uint64_t sel_gpu_fingerprint(const sel_gpu_kind_t *kind)
{
    const uint64_t gib = UINT64_C(1) << 30;
    uint64_t hash = FNV_START;
    for (size_t i = 0; i < sizeof kind->name && kind->name[i]; i++)
        hash = hash_byte(hash, (uint8_t)kind->name[i]);
    hash = hash_word(hash, kind->arch);
    hash = hash_word(hash, kind->multiprocessors);
    hash = hash_word(hash, (kind->memory_bytes + gib / 2) / gib);
    hash = hash_word(hash, kind->nvlinks);
    hash = hash_word(hash, kind->driver);
    return hash ? hash : 1;
}

uint64_t sel_fingerprint(const uint64_t *gpu, uint32_t count)
{
    uint64_t hash = FNV_START, last = 0;
    for (;;) { /* each round finds the next larger one */
        uint64_t next = UINT64_MAX;
        bool found = false;
        for (uint32_t i = 0; i < count; i++) {
            if (gpu[i] > last && gpu[i] <= next) {
                next = gpu[i];
                found = true;
            }
        }
        if (!found)
            return hash ? hash : 1;
        hash = hash_word(hash, next);
        last = next;
    }
}
