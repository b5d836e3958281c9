/* SPDX-License-Identifier: Apache-2.0 */
/* team.c - see team.h. */
#define _GNU_SOURCE
#include "team.h"

#include <stdio.h>
#include <string.h>

enum { STAGE_IDLE, STAGE_OFFER, STAGE_SENT, STAGE_OPEN, STAGE_PROOF };
static const uint64_t TOKEN = UINT64_C(0x0123456789abcdef);

static int stage(net_rendezvous_t *rendezvous, uint32_t number, const void *record, size_t size)
{
    CHECK(net_post(rendezvous, number, record, size) == 0);
    CHECK(wait_stage(rendezvous, number) == 0);
    return 0;
}

static int enter(const net_key_t *key, uint32_t rank, uint32_t nranks, net_rendezvous_t **rendezvous)
{
    CHECK(net_join(key, rendezvous) == 0);
    CHECK(wait_count(*rendezvous, nranks) == 0);
    CHECK(net_set_rank(*rendezvous, rank, nranks) == 0);
    return 0;
}

/* Agree whether all ranks hold the same idle scratch. */
static int agree(net_rendezvous_t *rendezvous, uint32_t rank, uint32_t nranks, uint64_t idle, bool *same)
{
    *same = idle != 0;
    CHECK(stage(rendezvous, STAGE_IDLE, &idle, sizeof idle) == 0);
    net_unlink(rendezvous);
    for (uint32_t peer = 0; peer < nranks; peer++) {
        uint64_t theirs = 0;
        size_t size;
        CHECK(net_read(rendezvous, STAGE_IDLE, peer, &theirs, sizeof theirs, &size) == 0);
        *same = *same && theirs == idle;
    }
    if (idle && !*same)
        alg_scratch_leave_idle(idle, rank);
    return 0;
}

static int make(const team_plan_t *plan, net_rendezvous_t *rendezvous, uint32_t rank, uint32_t nranks,
                alg_scratch_t **scratch)
{
    uint8_t offers[ALG_MAX_RANKS][NET_OFFER_BYTES];
    uint8_t offer[NET_OFFER_BYTES];
    int ordinal = plan->device == ALG_DEVICE_CPU ? (int)rank : (int)rank % plan->devices;
    CHECK(alg_scratch_create(plan->device, ordinal, plan->kind, &plan->set, plan->id, rank, nranks, &plan->map, scratch,
                             offer) == 0);
    CHECK(stage(rendezvous, STAGE_OFFER, offer, sizeof offer) == 0);
    for (uint32_t peer = 0; peer < nranks; peer++) {
        size_t size;
        CHECK(net_read(rendezvous, STAGE_OFFER, peer, offers[peer], NET_OFFER_BYTES, &size) == 0);
        CHECK(size == NET_OFFER_BYTES);
    }
    CHECK(alg_scratch_send(*scratch, offers) == 0);
    CHECK(stage(rendezvous, STAGE_SENT, NULL, 0) == 0);
    CHECK(alg_scratch_open(*scratch, offers) == 0);
    return 0;
}

int team_build(const team_plan_t *plan, uint32_t rank, uint32_t nranks, alg_scratch_t **scratch, bool *reused)
{
    net_rendezvous_t *rendezvous;
    CHECK(enter(&plan->key, rank, nranks, &rendezvous) == 0);
    uint64_t idle = alg_scratch_idle(&plan->set, rank, &plan->map);
    CHECK(agree(rendezvous, rank, nranks, idle, reused) == 0);
    if (*reused)
        CHECK(alg_scratch_take(idle, rank, scratch) == 0);
    else
        CHECK(make(plan, rendezvous, rank, nranks, scratch) == 0);
    CHECK(stage(rendezvous, STAGE_OPEN, NULL, 0) == 0);
    CHECK(alg_scratch_prove_write(*scratch, TOKEN) == 0);
    CHECK(stage(rendezvous, STAGE_PROOF, NULL, 0) == 0);
    CHECK(alg_scratch_prove_read(*scratch, TOKEN) == 0);
    CHECK(net_decide(rendezvous, NET_ATTACHED, NULL) == NET_ATTACHED);
    net_leave(rendezvous);
    return 0;
}

int team_exchange(const team_plan_t *plan, const char *round, uint32_t rank, uint32_t nranks,
                  const uint8_t offer[NET_OFFER_BYTES], uint8_t offers[][NET_OFFER_BYTES])
{
    struct {
        net_key_t key;
        char round[48];
    } place = {.key = plan->key};
    snprintf(place.round, sizeof place.round, "%s: offers", round);
    net_key_t key = net_key_hash(&place, sizeof place);
    net_rendezvous_t *rendezvous;
    CHECK(enter(&key, rank, nranks, &rendezvous) == 0);
    CHECK(stage(rendezvous, 0, offer, NET_OFFER_BYTES) == 0);
    net_unlink(rendezvous);
    for (uint32_t peer = 0; peer < nranks; peer++) {
        size_t size;
        CHECK(net_read(rendezvous, 0, peer, offers[peer], NET_OFFER_BYTES, &size) == 0);
    }
    net_leave(rendezvous);
    return 0;
}

int team_meet(const team_plan_t *plan, const char *round, uint32_t rank, uint32_t nranks)
{
    struct {
        net_key_t key;
        char round[48];
    } place = {.key = plan->key};
    strncpy(place.round, round, sizeof place.round - 1);
    net_key_t key = net_key_hash(&place, sizeof place);
    net_rendezvous_t *rendezvous;
    CHECK(enter(&key, rank, nranks, &rendezvous) == 0);
    CHECK(stage(rendezvous, 0, NULL, 0) == 0);
    net_unlink(rendezvous);
    net_leave(rendezvous);
    return 0;
}
