/* SPDX-License-Identifier: Apache-2.0 */
/* mix.c - see mix.h. A slot owns the buffers of one call from its preparation to its check. */
#include "mix.h"

#include <string.h>

#include "call.h"
#include "message.h"

enum { MOST_CALLS = MIX_MOST_GROUP * REF_MAX_RANKS, WORD_GO_ON = RANKS_WORDS - 5 /* the last four: tests/gpu/gpu.c */ };

typedef struct event {
    int comm;
    bool collective;
    coll_t k;
    message_t m;
} event_t;

/* One call of one rank. */
typedef struct slot {
    bool collective;
    int comm, rank;
    call_t call;
    message_end_t end;
    uint8_t *input, *output; /* copies of the buffers, if the library works elsewhere */
} slot_t;

static coll_t draw_collective(uint64_t *seed, int nranks)
{
    coll_t k = {.collective = (alg_collective_t)data_below(seed, COLL_COUNT),
                .root = (uint32_t)data_below(seed, (uint64_t)nranks),
                .c = {.nranks = nranks, .kind = DATA_RANDOM, .op = REF_SUM}};
    k.c.type = (ncclDataType_t)data_below(seed, REF_TYPES);
    if (data_below(seed, 2)) { /* of which groups make one call */
        k.collective = data_below(seed, 2) ? ALG_BROADCAST : ALG_REDUCE;
        k.c.type = ncclInt32;
    }
    k.c.count = 1 + data_below(seed, 500);
    k.c.seed = data_random(seed);
    return k;
}

static message_t draw_message(const mix_t *mix, uint64_t *seed, int nranks)
{
    const uint64_t size = data_below(seed, 10);
    message_t m = {.from = (int)data_below(seed, (uint64_t)nranks),
                   .to = (int)data_below(seed, (uint64_t)nranks),
                   .type = (ncclDataType_t)data_below(seed, REF_TYPES),
                   .as_bytes = data_below(seed, 3) == 0,
                   .seed = data_random(seed)};
    const size_t most = (size == 9 ? (size_t)mix->largest : size > 4 ? 2000 : 40) / ref_bytes(m.type);
    m.count = data_below(seed, most + 1);
    return m;
}

static event_t draw_event(const mix_t *mix, uint64_t *seed, int nranks)
{
    event_t event = {.comm = (int)data_below(seed, (uint64_t)mix->comms)};
    event.collective = mix->collectives > 0 && data_below(seed, (uint64_t)mix->collectives) == 0;
    if (event.collective)
        event.k = draw_collective(seed, nranks);
    else
        event.m = draw_message(mix, seed, nranks);
    return event;
}

/* ---- One rank's calls of some events ------------------------------------------------------- */

static size_t draw_offset(uint64_t *own, ncclDataType_t type)
{
    return data_below(own, 16 / ref_bytes(type) + 1) * ref_bytes(type);
}

/* Prepare this rank's ends of an event; returns their number, 0 to 2. */
static int prepare(slot_t *slot, const event_t *event, const ncclComm_t *comms, int rank, uint64_t *own)
{
    const ncclComm_t comm = comms[event->comm];
    int calls = 0;
    if (event->collective) {
        const ncclDataType_t type = event->k.c.type;
        slot[0] = (slot_t){.collective = true, .comm = event->comm, .rank = rank};
        call_prepare_coll(&slot[0].call, comm, rank, &event->k,
                          (call_shape_t){draw_offset(own, type), draw_offset(own, type), data_below(own, 3) == 0});
        return 1;
    }
    for (int sends = 0; sends < 2; sends++) {
        if ((sends ? event->m.from : event->m.to) != rank)
            continue;
        slot[calls] = (slot_t){.comm = event->comm, .rank = rank};
        message_prepare(&slot[calls++].end, &event->m, sends, comm, draw_offset(own, event->m.type));
    }
    return calls;
}

static int peer_of(const slot_t *slot)
{
    return slot->end.sends ? slot->end.m.to : slot->end.m.from;
}

/* Whether the order of two calls matters. */
static bool ordered(const slot_t *a, const slot_t *b)
{
    if (a->comm != b->comm || a->rank != b->rank || a->collective != b->collective)
        return false;
    return a->collective || (a->end.sends == b->end.sends && peer_of(a) == peer_of(b));
}

/* Swap neighbours whose order does not matter. */
static void shuffle(slot_t **order, int calls, uint64_t *own)
{
    for (int i = 0; i < 4 * calls; i++) {
        const uint64_t at = calls > 1 ? data_below(own, (uint64_t)calls - 1) : 0;
        if (calls < 2 || ordered(order[at], order[at + 1]))
            continue;
        slot_t *other = order[at];
        order[at] = order[at + 1];
        order[at + 1] = other;
    }
}

/* The place of p, which lies in the buffer or is NULL, in the buffer's copy. */
static void *in_copy(const void *p, const data_buffer_t *buffer, uint8_t *copy)
{
    return p ? copy + ((const uint8_t *)p - buffer->data) : NULL;
}

static const data_buffer_t *output_of(const slot_t *slot)
{
    return slot->collective ? &slot->call.output : &slot->end.buffer;
}

static bool has_input(const slot_t *slot)
{
    return slot->collective && !slot->call.in_place;
}

static void put(const mix_place_t *place, slot_t *slot)
{
    slot->output = place->put(place->context, output_of(slot));
    slot->input = has_input(slot) ? place->put(place->context, &slot->call.input) : slot->output;
}

static void get(const mix_place_t *place, const slot_t *slot)
{
    place->get(place->context, output_of(slot), slot->output);
    if (has_input(slot))
        place->get(place->context, &slot->call.input, slot->input);
}

static ncclResult_t issue(slot_t *slot, cudaStream_t stream)
{
    if (!slot->collective)
        return message_issue_at(&slot->end, slot->output ? slot->output : slot->end.buffer.data, stream);
    call_t here = slot->call;
    here.stream = stream;
    if (slot->output) {
        here.send = in_copy(here.send, here.in_place ? &here.output : &here.input, slot->input);
        here.recv = in_copy(here.recv, &here.output, slot->output);
    }
    return call_issue(&here);
}

static void finish(slot_t *slot)
{
    uint64_t hash = 0;
    if (slot->collective)
        call_finish(&slot->call, 0, 1, &hash);
    else
        message_finish(&slot->end);
}

static void run_calls(const mix_place_t *place, slot_t *slot, int calls, bool grouped, uint64_t *own)
{
    slot_t *order[MOST_CALLS];
    cudaStream_t streams[MIX_COMMS] = {0};
    for (int i = 0; i < calls; i++) {
        order[i] = &slot[i];
        if (place)
            put(place, &slot[i]);
    }
    if (place)
        place->begin(place->context, own, streams);
    if (grouped) {
        shuffle(order, calls, own);
        CHECK_NCCL(ncclGroupStart());
    }
    for (int i = 0; i < calls; i++)
        CHECK_NCCL(issue(order[i], streams[order[i]->comm]));
    if (grouped)
        CHECK_NCCL(ncclGroupEnd());
    if (place)
        place->end(place->context);
    for (int i = 0; i < calls; i++) {
        if (place)
            get(place, &slot[i]);
        finish(&slot[i]);
    }
}

/* ---- Programs ------------------------------------------------------------------------------- */

static int draw_length(const mix_t *mix, int left, uint64_t *seed)
{
    const int most = mix->group < left ? mix->group : left;
    return data_below(seed, 3) == 0 ? 1 : 1 + (int)data_below(seed, (uint64_t)most);
}

/* Prepare the calls of all ranks of this thread. */
static int prepare_all(slot_t *slot, const event_t *event, const mix_t *mix, const ncclComm_t *comms, int nranks,
                       uint64_t *own)
{
    int calls = 0;
    for (int rank = 0; rank < nranks; rank++) {
        ncclComm_t mine[MIX_COMMS] = {0};
        for (int c = 0; c < mix->comms; c++)
            mine[c] = comms[c * nranks + rank];
        if (mine[event->comm] != NULL)
            calls += prepare(&slot[calls], event, mine, rank, own);
    }
    return calls;
}

void mix_run(const mix_t *mix, const mix_place_t *place, const ncclComm_t *comms, int nranks, uint64_t own)
{
    static _Thread_local slot_t slot[MOST_CALLS];
    uint64_t seed = mix->seed;
    for (int done = 0; done < mix->events;) {
        const int events = draw_length(mix, mix->events - done, &own);
        int calls = 0;
        for (int i = 0; i < events; i++) {
            const event_t event = draw_event(mix, &seed, nranks);
            calls += prepare_all(&slot[calls], &event, mix, comms, nranks, &own);
        }
        if (mix->stall_one_in > 0 && data_below(&own, (uint64_t)mix->stall_one_in) == 0)
            usleep((useconds_t)data_below(&own, 2000));
        run_calls(place, slot, calls, events > 1 || calls > 1, &own);
        done += events;
    }
}

/* Whether time is left: rank 0 decides for all. */
static bool has_time(ranks_t *ranks, double end)
{
    _Atomic uint64_t *word = &ranks->shared->words[WORD_GO_ON];
    if (ranks->rank == 0)
        atomic_store(word, ranks_seconds() < end);
    ranks_barrier(ranks);
    const bool more = atomic_load(word);
    ranks_barrier(ranks);
    return more;
}

uint64_t mix_run_for(int seconds, const mix_t *mix, const mix_place_t *place, ranks_t *ranks, const ncclComm_t *comms,
                     int nranks)
{
    enum { APART = 1000 }; /* seeds of two programs: the ranks' own lie between */
    const double end = ranks_seconds() + seconds;
    mix_t program = *mix;
    uint64_t programs = 0;
    do {
        program.seed = mix->seed + APART * programs++;
        mix_run(&program, place, comms, nranks, program.seed + (uint64_t)ranks->rank);
    } while (has_time(ranks, end));
    return programs;
}
