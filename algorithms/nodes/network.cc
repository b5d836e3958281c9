/* SPDX-License-Identifier: Apache-2.0 */
/* network.cc - collectives between nodes on the CPU device, except all-reduce (exchange.cu): a segment of the input ->
 * the window of each peer that wants it -> output. Reducing ranks add in rank order and round once, so results have the
 * bits of one node.
 *
 * A step sends one segment, maybe empty, to every peer, and ends when every peer's segment has arrived and this rank's
 * are written. Steps use two halves of the windows in turn (docs/lab/proofs.md). After a time-out or a peer's end,
 * closing the connections informs the other ranks. */
#include "algorithms/nodes/nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "algorithms/device/input.h"
#include "algorithms/device/launch.h"

enum {
    NAP_MS = 10,                   /* between checks of the abort */
    ALG_NODES_SEGMENT = 256 << 10, /* most bytes per peer and step */
    WINDOW = 2 * (int)ALG_NODES_SEGMENT
};

struct alg_nodes {
    alg_team_t team;        /* of all ranks */
    net_network_t *network; /* owned; NULL once a call has failed */
    uint64_t step;
    uint8_t *windows;
    uint64_t flags[ALG_MAX_RANKS];
    uint8_t *staging; /* the segment sent to each rank */
    char fault[NET_WAY_TEXT];
};

typedef struct piece {
    const uint8_t *data;
    uint64_t bytes;
} piece_t;

static const uint8_t *landed(const alg_nodes_t *nodes, uint32_t peer)
{
    return nodes->windows + (size_t)peer * WINDOW + (nodes->step & 1) * ALG_NODES_SEGMENT;
}

static int fail(alg_nodes_t *nodes, int status)
{
    const char *fault = net_network_fault(nodes->network);
    if (fault)
        snprintf(nodes->fault, sizeof(nodes->fault), "%s", fault);
    net_network_close(nodes->network);
    nodes->network = NULL;
    return status;
}

/* Whether the peer's segment has arrived, and this rank's is written. */
static bool is_through(const alg_nodes_t *nodes, uint32_t peer)
{
    return peer == nodes->team.rank || (__atomic_load_n(&nodes->flags[peer], __ATOMIC_ACQUIRE) >= nodes->step &&
                                        net_network_sent(nodes->network, peer) >= nodes->step);
}

static int wait_for(alg_nodes_t *nodes, uint32_t peer, uint64_t deadline)
{
    while (!is_through(nodes, peer)) {
        if (!net_network_alive(nodes->network, peer))
            return ALG_STATUS_PEER_LEFT;
        if (__atomic_load_n(&nodes->team.control->abort, __ATOMIC_ACQUIRE))
            return ALG_STATUS_ABORTED;
        if (deadline && lane_now() >= deadline)
            return ALG_STATUS_TIMEOUT;
        net_network_progress(nodes->network, NAP_MS);
    }
    return ALG_STATUS_OK;
}

static int exchange(alg_nodes_t *nodes, const piece_t *to)
{
    const uint64_t step = ++nodes->step, half = (step & 1) * ALG_NODES_SEGMENT;
    int status = ALG_STATUS_OK;
    for (uint32_t p = 0; p < nodes->team.nranks && status == ALG_STATUS_OK; p++) {
        if (p != nodes->team.rank && net_network_put(nodes->network, p, half, to[p].data, to[p].bytes, step) != 0)
            status = ALG_STATUS_PEER_LEFT;
    }
    const uint64_t timeout_ns = lane_limit_ns(nodes->team.limit), deadline = timeout_ns ? lane_now() + timeout_ns : 0;
    for (uint32_t p = 0; p < nodes->team.nranks && status == ALG_STATUS_OK; p++)
        status = wait_for(nodes, p, deadline);
    return status == ALG_STATUS_OK ? status : fail(nodes, status);
}

/* Turns the input into this rank's contribution, in the output. */
template <int TYPE, int OPS> static void prepare(const alg_team_t &team, const kernel_call_t &part)
{
    typedef reduction<TYPE, OPS, ALG_MAX_RANKS, false> R;
    R r = R::make(team, part);
    r.begin(part);
    for (uint32_t v = 0; v < r.vectors(); v++)
        r.store(v, r.load(v));
}

template <int TYPE, int OPS>
static void combine(const alg_team_t &team, const kernel_call_t &part, const uint8_t *const *source)
{
    typedef reduction<TYPE, OPS, ALG_MAX_RANKS, false> R;
    const R r = R::make(team, part);
    buffer_t in[ALG_MAX_RANKS];
    for (uint32_t p = 0; p < team.nranks; p++)
        in[p] = buffer_make(source[p], r.output.bytes);
    for (uint32_t v = 0; v < r.vectors(); v++) {
        vec16_t others[ALG_MAX_RANKS - 1] = {};
        for (uint32_t p = 0; p < team.nranks; p++) {
            if (p != team.rank)
                others[p < team.rank ? p : p - 1] = buffer_load<typename R::U>(in[p], v);
        }
        r.store(v, r.combine(others, team.rank, buffer_load<typename R::U>(in[team.rank], v)));
    }
}

/* Indexed by alg_type_t and ops_kind. */
#define PER_OPS(F, T)                                 \
    {                                                 \
        F<T, OPS_SUM>, F<T, OPS_MAX>, F<T, OPS_OTHER> \
    }
#define PER_TYPE(F)                                                                                         \
    {                                                                                                       \
        PER_OPS(F, ALG_INT8), PER_OPS(F, ALG_INT8), PER_OPS(F, ALG_INT32), PER_OPS(F, ALG_INT32),           \
            PER_OPS(F, ALG_INT64), PER_OPS(F, ALG_INT64), PER_OPS(F, ALG_FLOAT16), PER_OPS(F, ALG_FLOAT32), \
            PER_OPS(F, ALG_FLOAT64), PER_OPS(F, ALG_BFLOAT16), PER_OPS(F, ALG_FLOAT8_E4M3),                 \
            PER_OPS(F, ALG_FLOAT8_E5M2)                                                                     \
    }

static void stage(alg_nodes_t *nodes, const alg_call_t *call, uint32_t peer, const uint8_t *input, uint64_t count)
{
    static void (*const kernel[ALG_TYPE_COUNT][OPS_KINDS])(const alg_team_t &, const kernel_call_t &) =
        PER_TYPE(prepare);
    kernel_call_t part = kernel_call_make(*call);
    part.input = input;
    part.output = nodes->staging + (uint64_t)peer * ALG_NODES_SEGMENT;
    part.count = count;
    kernel[call->type][ops_kind(call->op)](nodes->team, part);
}

static void reduce_landed(const alg_nodes_t *nodes, const alg_call_t *call, uint8_t *output, uint64_t count)
{
    static void (*const kernel[ALG_TYPE_COUNT][OPS_KINDS])(const alg_team_t &, const kernel_call_t &,
                                                           const uint8_t *const *) = PER_TYPE(combine);
    const uint32_t rank = nodes->team.rank;
    const uint8_t *source[ALG_MAX_RANKS];
    for (uint32_t p = 0; p < nodes->team.nranks; p++)
        source[p] = p == rank ? nodes->staging + (uint64_t)p * ALG_NODES_SEGMENT : landed(nodes, p);
    kernel_call_t part = kernel_call_make(*call);
    part.input = part.output = output;
    part.count = count;
    kernel[call->type][ops_kind(call->op)](nodes->team, part, source);
}

typedef struct segment {
    uint64_t at, bytes; /* in a block */
    uint64_t block;     /* bytes of a block */
    uint64_t count;     /* elements */
} segment_t;

static const uint8_t *input_for(const alg_call_t *call, const segment_t *segment, uint32_t peer)
{
    return (const uint8_t *)call->input + (route_input_has_blocks(call->collective) ? peer * segment->block : 0) +
           segment->at;
}

static uint8_t *output_from(const alg_call_t *call, const segment_t *segment, uint32_t peer)
{
    return (uint8_t *)call->output + (route_output_has_blocks(call->collective) ? peer * segment->block : 0) +
           segment->at;
}

static void take_landed(const alg_nodes_t *nodes, const alg_call_t *call, const segment_t *segment, uint32_t senders)
{
    const uint32_t rank = nodes->team.rank;
    if (alg_collective_reduces(call->collective)) {
        reduce_landed(nodes, call, output_from(call, segment, rank), segment->count);
        return;
    }
    for (uint32_t p = 0; p < nodes->team.nranks; p++) {
        if (route_has(senders, p))
            memmove(output_from(call, segment, p), p == rank ? input_for(call, segment, p) : landed(nodes, p),
                    segment->bytes);
    }
}

static int move_segment(alg_nodes_t *nodes, const alg_call_t *call, const segment_t *segment)
{
    const route_t route = route_of(nodes->team, call->collective, call->root);
    const uint32_t rank = nodes->team.rank;
    piece_t to[ALG_MAX_RANKS] = {};
    for (uint32_t p = 0; p < nodes->team.nranks; p++) {
        if (!route_has(route.senders, rank) || !route_has(route.takers, p))
            continue;
        to[p] = {input_for(call, segment, p), segment->bytes};
        if (alg_collective_reduces(call->collective)) {
            stage(nodes, call, p, to[p].data, segment->count);
            to[p].data = nodes->staging + (uint64_t)p * ALG_NODES_SEGMENT;
        }
    }
    const int status = exchange(nodes, to);
    if (status == ALG_STATUS_OK && route_has(route.takers, rank))
        take_landed(nodes, call, segment, route.senders);
    return status;
}

static int by_blocks(alg_nodes_t *nodes, const alg_call_t *call)
{
    const size_t width = alg_type_bytes(call->type);
    const uint64_t most = ALG_NODES_SEGMENT / width;
    int status = ALG_STATUS_OK;
    for (uint64_t at = 0; at < call->count && status == ALG_STATUS_OK; at += most) {
        const uint64_t count = call->count - at < most ? call->count - at : most;
        const segment_t segment = {at * width, count * width, call->count * width, count};
        status = move_segment(nodes, call, &segment);
    }
    return status;
}

int alg_nodes_create(uint32_t rank, uint32_t nranks, alg_nodes_t **nodes)
{
    alg_nodes_t *made = (alg_nodes_t *)calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    made->team.rank = rank;
    made->team.nranks = nranks;
    made->windows = (uint8_t *)calloc(nranks, WINDOW);
    made->staging = (uint8_t *)malloc((size_t)nranks * ALG_NODES_SEGMENT);
    if (!made->windows || !made->staging) {
        alg_nodes_destroy(made);
        return -ENOMEM;
    }
    *nodes = made;
    return 0;
}

net_landing_t alg_nodes_landing(const alg_nodes_t *nodes)
{
    return {nodes->windows, WINDOW, const_cast<uint64_t *>(nodes->flags), nullptr, 0};
}

void alg_nodes_connected(alg_nodes_t *nodes, net_network_t *network)
{
    nodes->network = network;
}

void alg_nodes_serve(alg_nodes_t *nodes, alg_team_t *team)
{
    nodes->team.control = team->control;
    nodes->team.limit = team->limit;
    team->every = nodes;
}

const char *alg_nodes_fault(const alg_nodes_t *nodes)
{
    return nodes->fault[0] ? nodes->fault : nullptr;
}

void alg_nodes_destroy(alg_nodes_t *nodes)
{
    if (!nodes)
        return;
    net_network_close(nodes->network);
    free(nodes->windows);
    free(nodes->staging);
    free(nodes);
}

static int launch(const alg_team_t *team, const alg_call_t *call)
{
    alg_nodes_t *nodes = team->every;
    return nodes->network ? by_blocks(nodes, call) : (int)ALG_STATUS_PEER_LEFT;
}

static uint64_t max_bytes(const alg_map_t *, uint32_t, alg_type_t)
{
    return UINT64_MAX;
}

static void shape(uint64_t, uint32_t, uint32_t *blocks, uint32_t *threads)
{
    *blocks = *threads = 1;
}

#define DESCRIBE(collective)                                                                                      \
    {                                                                                                             \
        "network", collective, max_bytes, shape, nullptr, launch, nullptr, ALG_MEMORY_NETWORK, nullptr, 0, false, \
            false, false, nullptr, ALG_PIECE_FIRST,                                                               \
        {                                                                                                         \
        }                                                                                                         \
    }
const alg_algorithm_t alg_network[ALG_SEND_RECV] = {{},
                                                    DESCRIBE(ALG_REDUCE_SCATTER),
                                                    DESCRIBE(ALG_REDUCE),
                                                    DESCRIBE(ALG_ALL_GATHER),
                                                    DESCRIBE(ALG_ALL_TO_ALL),
                                                    DESCRIBE(ALG_BROADCAST),
                                                    DESCRIBE(ALG_GATHER),
                                                    DESCRIBE(ALG_SCATTER)};
