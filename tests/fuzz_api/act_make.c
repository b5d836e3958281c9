/* SPDX-License-Identifier: Apache-2.0 */
/* act_make.c - creation of communicators: init, init all, split, shrink, and inits that are given up. */
#include "act.h"

#include <string.h>

/* A configuration, or none. */
typedef struct drawn_config {
    ncclConfig_t config;
    bool any;
} drawn_config_t;

static drawn_config_t draw_config(actor_t *actor, bool *blocking)
{
    drawn_config_t drawn = {.config = NCCL_CONFIG_INITIALIZER, .any = act_draw(actor, 2) == 0};
    bool says = act_draw(actor, 2) == 0, value = act_draw(actor, 2) == 0;
    int most = (int)act_draw(actor, 4);
    if (!drawn.any)
        return drawn;
    if (most > 0)
        drawn.config.maxCTAs = most;
    if (says) {
        drawn.config.blocking = value;
        *blocking = value;
    }
    return drawn;
}

static void draw_owners(actor_t *actor, fuzz_comm_t *comm)
{
    int actors = actor->run->program->actors, order[FUZZ_ACTORS];
    uint64_t how = act_draw(actor, 4); /* 0: one actor for all; 1: any actor; else one actor each */
    for (int i = 0; i < actors; i++) {
        int j = (int)act_draw(actor, (uint64_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    comm->members = 1 + (int)act_draw(actor, how < 2 ? FUZZ_MEMBERS : (uint64_t)actors);
    for (int m = 0; m < comm->members; m++)
        comm->owner[m] = how == 0 ? order[0] : how == 1 ? order[act_draw(actor, (uint64_t)actors)] : order[m];
}

void act_init(actor_t *actor, const fuzz_step_t *step)
{
    int slot = (int)step->slot;
    fuzz_comm_t *comm = &actor->comm[slot];
    ncclUniqueId id[FUZZ_IDS];
    if (comm->state != STATE_NONE)
        return;
    *comm = (fuzz_comm_t){.state = STATE_LIVE, .blocking = true};
    draw_owners(actor, comm);
    drawn_config_t drawn = draw_config(actor, &comm->blocking);
    int ids = act_draw(actor, 4) == 0 ? 1 + (int)act_draw(actor, FUZZ_IDS) : 0; /* 0: not scalable */
    ids = ids < comm->members ? ids : comm->members;
    ranks_barrier(actor->ranks);
    if (comm->owner[0] == actor->me)
        for (int i = 0; i < (ids ? ids : 1); i++)
            CHECK_NCCL(ncclGetUniqueId(&actor->run->shared->id[i]));
    ranks_barrier(actor->ranks);
    memcpy(id, actor->run->shared->id, sizeof(id));
    ranks_barrier(actor->ranks);

    int depth = act_open(actor, slot);
    for (int m = 0; m < comm->members; m++) {
        ncclConfig_t config = drawn.config; /* the caller's may be freed right after the call */
        if (!act_owns(actor, slot, m))
            continue;
        if (ids)
            CHECK_STARTED(ncclCommInitRankScalable(act_place(actor, slot, m), comm->members, m, ids, id,
                                                   drawn.any ? &config : NULL));
        else if (drawn.any)
            CHECK_STARTED(ncclCommInitRankConfig(act_place(actor, slot, m), comm->members, id[0], m, &config));
        else
            CHECK_STARTED(ncclCommInitRank(act_place(actor, slot, m), comm->members, id[0], m));
    }
    act_close(depth, ncclSuccess);
    act_settle(actor, slot);
}

void act_init_all(actor_t *actor, const fuzz_step_t *step)
{
    int slot = (int)step->slot, devices[FUZZ_MEMBERS];
    fuzz_comm_t *comm = &actor->comm[slot];
    if (comm->state != STATE_NONE)
        return;
    *comm = (fuzz_comm_t){.state = STATE_LIVE, .blocking = true};
    comm->members = 1 + (int)act_draw(actor, FUZZ_MEMBERS);
    int owner = (int)act_draw(actor, (uint64_t)actor->run->program->actors);
    bool list = act_draw(actor, 2) == 0;
    for (int m = 0; m < comm->members; m++) {
        comm->owner[m] = owner;
        devices[m] = comm->members - 1 - m;
    }
    if (owner != actor->me)
        return;
    CHECK_NCCL(ncclCommInitAll(act_place(actor, slot, 0), comm->members, list ? devices : NULL));
    act_settle(actor, slot);
}

static void init_members(actor_t *actor, int slot, const ncclUniqueId *id)
{
    fuzz_comm_t *comm = &actor->comm[slot];
    bool group = act_owned(actor, slot) > 1;
    if (group)
        CHECK_NCCL(ncclGroupStart());
    for (int m = 0; m < comm->members; m++) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = comm->blocking;
        if (act_owns(actor, slot, m))
            CHECK_STARTED(ncclCommInitRankConfig(act_place(actor, slot, m), comm->members, *id, m, &config));
    }
    if (group)
        CHECK_STARTED(ncclGroupEnd());
}

/* Make two communicators; each actor decides independently whether to group them, and when to make and poll them. */
void act_twins(actor_t *actor, const fuzz_step_t *step)
{
    const int slot[2] = {(int)step->slot, (int)step->other};
    ncclUniqueId id[2];
    if (slot[0] == slot[1] || actor->comm[slot[0]].state != STATE_NONE || actor->comm[slot[1]].state != STATE_NONE)
        return;
    fuzz_comm_t comm = {.state = STATE_LIVE};
    draw_owners(actor, &comm);
    comm.blocking = act_draw(actor, 2) == 0;
    actor->comm[slot[0]] = actor->comm[slot[1]] = comm;
    ranks_barrier(actor->ranks);
    for (int i = 0; i < 2 && comm.owner[0] == actor->me; i++)
        CHECK_NCCL(ncclGetUniqueId(&actor->run->shared->id[i]));
    ranks_barrier(actor->ranks);
    memcpy(id, actor->run->shared->id, sizeof(id));
    ranks_barrier(actor->ranks);

    bool together = data_below(&actor->own, 2) == 0;
    if (together)
        CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        usleep((useconds_t)data_below(&actor->own, 5000));
        init_members(actor, slot[i], &id[i]);
    }
    if (together)
        CHECK_STARTED(ncclGroupEnd());
    for (int i = 0; i < 2; i++) {
        usleep((useconds_t)data_below(&actor->own, 5000));
        act_settle(actor, slot[i]);
    }
}

/* Abandon an init: all ranks except the last are this actor's, and wait until they are aborted. */
void act_abandon(actor_t *actor, const fuzz_step_t *step)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm[FUZZ_MEMBERS - 1] = {NULL};
    int members = 2 + (int)act_draw(actor, FUZZ_MEMBERS - 1), count;
    bool polls = act_draw(actor, 2) == 0, group = act_draw(actor, 2) == 0;
    float value = 1;
    ncclUniqueId id;
    (void)step;
    if ((int)act_draw(actor, (uint64_t)actor->run->program->actors) != actor->me)
        return;
    config.blocking = 0;
    CHECK_NCCL(ncclGetUniqueId(&id));
    if (group)
        CHECK_NCCL(ncclGroupStart());
    for (int m = 0; m < members - 1; m++)
        CHECK_STARTED(ncclCommInitRankConfig(&comm[m], members, id, m, &config));
    if (group)
        CHECK_STARTED(ncclGroupEnd());
    for (int m = 0; polls && m < members - 1; m++) {
        ncclResult_t state = ncclSuccess;
        CHECK_NCCL(ncclCommGetAsyncError(comm[m], &state));
        CHECK(state == ncclInProgress);
        CHECK_RESULT(ncclCommCount(comm[m], &count), ncclInvalidArgument);
        CHECK_RESULT(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm[m], NULL), ncclInvalidArgument);
    }
    for (int m = 0; m < members - 1; m++)
        CHECK_NCCL(ncclCommAbort(comm[m]));
}

/* ---- Split ------------------------------------------------------------------------------ */

typedef struct division {
    int color[FUZZ_MEMBERS]; /* 0, 1, or -1: none */
    int key[FUZZ_MEMBERS];
    int slot[2]; /* number of colours; -1: the last split has no free slot */
} division_t;

static void draw_division(actor_t *actor, const fuzz_step_t *step, division_t *division)
{
    for (int color = 0; color < 2; color++) {
        int slot = (int)((step->other + (unsigned)color) % actor->run->program->slots);
        division->slot[color] = actor->comm[slot].state == STATE_NONE ? slot : -1;
    }
    for (int m = 0; m < FUZZ_MEMBERS; m++) {
        int color = (int)act_draw(actor, 5) - 1;
        division->color[m] = color > 0 ? color % 2 : color;
        division->key[m] = (int)act_draw(actor, 5) - 2;
        if (color >= 0 && division->slot[division->color[m]] < 0)
            division->color[m] = -1;
    }
}

/* Order the child's ranks: by key, equal keys by the parent's order. */
static int order_of(const fuzz_comm_t *parent, const division_t *division, int color, int *order)
{
    int count = 0;
    for (int m = 0; m < parent->members; m++) {
        int at = count;
        if (division->color[m] != color)
            continue;
        for (; at > 0 && division->key[order[at - 1]] > division->key[m]; at--)
            order[at] = order[at - 1];
        order[at] = m;
        count++;
    }
    return count;
}

static int place_in(const int *order, int count, int member)
{
    int at = 0;
    while (at < count && order[at] != member)
        at++;
    return at;
}

/* The result for a rank without a colour; NCCL may still hold the pointer after the call has returned. */
static ncclComm_t nowhere[FUZZ_SLOTS][FUZZ_MEMBERS];

void act_split(actor_t *actor, const fuzz_step_t *step)
{
    int slot = (int)step->slot, order[2][FUZZ_MEMBERS], count[2];
    fuzz_comm_t *parent = &actor->comm[slot];
    bool blocking = parent->blocking;
    division_t division;
    if (parent->state != STATE_LIVE && parent->state != STATE_REVOKED)
        return;
    draw_division(actor, step, &division);
    drawn_config_t drawn = draw_config(actor, &blocking);
    for (int color = 0; color < 2; color++)
        count[color] = order_of(parent, &division, color, order[color]);

    int depth = act_open(actor, slot);
    for (int m = 0; m < parent->members; m++) {
        ncclConfig_t config = drawn.config;
        int color = division.color[m];
        if (!act_owns(actor, slot, m))
            continue;
        if (color < 0) {
            nowhere[slot][m] = act_handle(actor, slot, m); /* anything but NULL */
            CHECK_STARTED(ncclCommSplit(act_handle(actor, slot, m), NCCL_SPLIT_NOCOLOR, division.key[m],
                                        &nowhere[slot][m], drawn.any ? &config : NULL));
            CHECK(__atomic_load_n(&nowhere[slot][m], __ATOMIC_ACQUIRE) == NULL);
            continue;
        }
        int place = place_in(order[color], count[color], m);
        CHECK_STARTED(ncclCommSplit(act_handle(actor, slot, m), color, division.key[m],
                                    act_place(actor, division.slot[color], place), drawn.any ? &config : NULL));
    }
    act_close(depth, ncclSuccess);
    act_settle(actor, slot); /* a non-blocking parent reports when the child is ready */
    for (int color = 0; color < 2; color++) {
        if (count[color] == 0)
            continue;
        fuzz_child(parent, order[color], count[color], blocking, &actor->comm[division.slot[color]]);
        act_settle(actor, division.slot[color]);
    }
}

/* ---- Shrink ------------------------------------------------------------------------------- */

void act_shrink_to(actor_t *actor, int slot, int other, const bool *gone, bool abort, bool blocking)
{
    fuzz_comm_t *parent = &actor->comm[slot];
    int order[FUZZ_MEMBERS], list[FUZZ_MEMBERS], count = 0, excluded = 0;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    for (int m = parent->members - 1; m >= 0; m--)
        if (gone[m])
            list[excluded++] = m; /* NCCL requires no order */
    for (int m = 0; m < parent->members; m++)
        if (!gone[m])
            order[count++] = m;
    int depth = act_open(actor, slot);
    for (int r = 0; r < count; r++) {
        int mine[FUZZ_MEMBERS]; /* NCCL may sort the caller's list */
        memcpy(mine, list, sizeof(mine));
        if (act_owns(actor, slot, order[r]))
            CHECK_STARTED(ncclCommShrink(act_handle(actor, slot, order[r]), mine, excluded, act_place(actor, other, r),
                                         &config, abort ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT));
    }
    act_close(depth, ncclSuccess);
    for (int r = 0; r < count; r++)
        if (act_owns(actor, slot, order[r]))
            act_wait_ready(act_handle(actor, slot, order[r]));
    fuzz_child(parent, order, count, blocking, &actor->comm[other]);
    act_settle(actor, other);
    if (abort)
        parent->state = STATE_STOPPED;
}

void act_shrink(actor_t *actor, const fuzz_step_t *step)
{
    int slot = (int)step->slot, left = 0;
    const fuzz_comm_t *parent = &actor->comm[slot];
    bool gone[FUZZ_MEMBERS];
    if ((parent->state != STATE_LIVE && parent->state != STATE_REVOKED) || parent->members < 2 ||
        actor->comm[step->other].state != STATE_NONE)
        return;
    for (int m = 0; m < parent->members; m++) {
        gone[m] = act_draw(actor, 3) == 0;
        left += !gone[m];
    }
    if (left == 0 || left == parent->members) {
        gone[parent->members - 1] = left != 0;
        left = 1;
    }
    bool abort = act_draw(actor, 4) == 0, blocking = act_draw(actor, 3) > 0;
    act_shrink_to(actor, slot, (int)step->other, gone, abort, blocking);
}
