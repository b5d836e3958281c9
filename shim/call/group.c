/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - groups: what is taken waits for the outermost end.
 *
 * On CUDA the real NCCL hears of every start and end, and its end runs first:
 * it alone knows of errors in the calls that were forwarded, and only its
 * success lets ours launch. All streams that the group uses on one communicator
 * join before and after; our work of one communicator goes to one of them, its
 * lead. Where the real NCCL has work of the same communicator, ours goes beside
 * it: another rank may make these calls without a group, in either order, and
 * then neither of the two may wait for the other. For the same reason messages go
 * beside collectives. All messages of a communicator are one call, in which they
 * progress side by side, so that it ends whatever groups their other ends stand in.
 * They launch first: behind a full launch queue of collectives they could be what
 * another rank waits for before it makes its collectives. Where several
 * communicators have one stream, messages leave it, too.
 *
 * Our collectives launch communicator by communicator, in the order of their
 * keys: under a key the ranks of a communicator have met, so it is the same on all
 * of them, which the order of creation need not be. Ranks of one communicator that
 * belong to this thread launch in turn, call by call: a launch queue is finite, and
 * what fills the first GPU's would wait for the second's.
 *
 * A rank that leaves out a call is one behind its peers for good. So whatever
 * keeps a call from its launch, but for errors of the program, which are the
 * same on every rank, ends the communicator (async_error).
 *
 * On the host device the calls run at the end, those of different communicators
 * at the same time, since each waits for its peers and the peers may be of the
 * same thread; and messages beside collectives, as above.
 *
 * The state belongs to the thread; its buffers are kept from group to group
 * and freed when the thread ends. Communicators in it are retained until the
 * group is over.
 */
#include "shim/call/group.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim/account/trace.h"
#include "shim/base/device.h"
#include "shim/base/last_error.h"
#include "shim/call/launch.h"
#include "shim/comm/order.h"
#include "shim/names/names.h"
#include "shim/real/real.h"
#include "shim/setup/attach.h"

/* The first NCCL that simulates, and what its initializer writes. */
enum { SIMULATE_VERSION = 22200, SIMULATE_MAGIC = 0x74685283 };
enum { MOST_NAPS = 10000 }; /* two seconds */

/* What a communicator has of one kind of work. */
typedef struct track {
    bool used;
    bool branched;   /* it goes to `branch`, else to the lead's stream */
    uint32_t blocks; /* the most that a call of it wants */
    shim_branch_t branch;
} track_t;

/* A stream of a communicator in the group. The first one of a communicator is its lead, which has the rest. */
typedef struct use {
    shim_comm_t *comm; /* retained */
    void *stream;
    shim_capture_t capture;
    uint32_t calls; /* that were put into rounds */
    track_t track[SHIM_USES];
} use_t;

typedef struct queued {
    shim_comm_t *comm; /* retained */
    shim_call_t call;
    uint32_t round; /* its number among the communicator's collectives */
    uint32_t index; /* its number in the group */
} queued_t;

typedef struct group {
    unsigned depth;
    ncclResult_t error; /* the last one that Shunt found */
    use_t *uses;
    queued_t *calls;
    alg_message_t *messages; /* of the calls, once they are joined */
    uint32_t use_count, use_room;
    uint32_t call_count, call_room;
    uint32_t message_room;
} group_t;

static _Thread_local group_t group;
static pthread_key_t exit_key;
static bool exit_key_made;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

/* ---- The state of the thread ------------------------------------------------------ */

static void free_use(use_t *use)
{
    for (int i = 0; i < SHIM_USES; i++)
        free(use->track[i].branch.nodes.node);
    shim_comm_release(use->comm);
}

static void drop_all(group_t *g)
{
    for (uint32_t i = 0; i < g->use_count; i++)
        free_use(&g->uses[i]);
    for (uint32_t i = 0; i < g->call_count; i++)
        shim_comm_release(g->calls[i].comm);
    g->use_count = g->call_count = 0;
    g->error = ncclSuccess;
}

static void thread_ends(void *state)
{
    group_t *g = state;
    drop_all(g);
    free(g->uses);
    free(g->calls);
    free(g->messages);
    memset(g, 0, sizeof(*g));
}

static void make_exit_key(void)
{
    exit_key_made = pthread_key_create(&exit_key, thread_ends) == 0;
}

/* Room for one more in a buffer of the thread. */
static bool grow(void **buffer, uint32_t count, uint32_t *room, size_t size)
{
    if (count < *room)
        return true;
    pthread_once(&exit_once, make_exit_key);
    if (exit_key_made)
        pthread_setspecific(exit_key, &group);
    uint32_t more = *room > 0 ? 2 * *room : 16;
    void *grown = realloc(*buffer, more * size);
    if (grown == NULL)
        return false;
    *buffer = grown;
    *room = more;
    return true;
}

/* A call of it does not launch here, while it does on the peers. */
static void end_comm(shim_comm_t *comm, ncclResult_t result)
{
    int none = ncclSuccess;
    if (atomic_load(&comm->phase) == SHIM_COMM_ATTACHED)
        atomic_compare_exchange_strong(&comm->async_error, &none, result);
}

/* The calls from number `first` on do not launch. */
static void end_comms_from(uint32_t first, ncclResult_t result)
{
    for (uint32_t i = first; i < group.call_count; i++)
        end_comm(group.calls[i].comm, result);
}

static ncclResult_t out_of_memory(shim_comm_t *comm)
{
    end_comm(comm, ncclSystemError);
    shim_set_last_error("out of memory for the calls of a group");
    return ncclSystemError;
}

unsigned shim_group_depth(void)
{
    return group.depth;
}

ncclResult_t shim_group_check(ncclResult_t result)
{
    if (group.depth > 0 && result != ncclSuccess && result != ncclInProgress)
        group.error = result;
    return result;
}

static use_t *lead_of(const shim_comm_t *comm)
{
    for (uint32_t i = 0; i < group.use_count; i++)
        if (group.uses[i].comm == comm)
            return &group.uses[i];
    return NULL;
}

static bool is_used(const shim_comm_t *comm, void *stream)
{
    for (uint32_t i = group.use_count; i > 0; i--) /* the last one most often */
        if (group.uses[i - 1].comm == comm && group.uses[i - 1].stream == stream)
            return true;
    return false;
}

static bool has_ours(const use_t *lead)
{
    return lead->track[SHIM_USE_COLLECTIVE].used || lead->track[SHIM_USE_MESSAGE].used;
}

ncclResult_t shim_group_use(shim_comm_t *comm, void *stream, const shim_capture_t *capture, shim_use_t use)
{
    use_t *lead = lead_of(comm);
    if (lead != NULL && lead->capture.id != capture->id) {
        shim_set_last_error(
            "the streams of one communicator in a group must all be captured by the same graph, or none");
        return ncclInvalidUsage;
    }
    if (lead == NULL || !is_used(comm, stream)) {
        if (!grow((void **)&group.uses, group.use_count, &group.use_room, sizeof(use_t)))
            return out_of_memory(comm);
        shim_comm_retain(comm);
        group.uses[group.use_count++] = (use_t){.comm = comm, .stream = stream, .capture = *capture};
        lead = lead_of(comm);
    }
    lead->track[use].used = true;
    return ncclSuccess;
}

ncclResult_t shim_group_queue(const shim_call_t *call)
{
    if (!grow((void **)&group.calls, group.call_count, &group.call_room, sizeof(queued_t)))
        return out_of_memory(call->comm);
    shim_comm_retain(call->comm);
    group.calls[group.call_count] = (queued_t){.comm = call->comm, .call = *call, .index = group.call_count};
    group.call_count++;
    return ncclSuccess;
}

/* ---- The calls in order ---------------------------------------------------------------- */

static bool is_message(const queued_t *queued)
{
    return shim_call_is_message(&queued->call);
}

/* See the head of this file. Those of messages stand together, communicator by communicator. */
static int compare_calls(const void *first, const void *second)
{
    const queued_t *a = first, *b = second;
    if (is_message(a) != is_message(b))
        return is_message(a) ? -1 : 1;
    for (int i = 0; i < 2; i++)
        if (a->comm->key.word[i] != b->comm->key.word[i])
            return a->comm->key.word[i] < b->comm->key.word[i] ? -1 : 1;
    if (is_message(a) && a->comm != b->comm)
        return a->comm < b->comm ? -1 : 1;
    if (a->round != b->round)
        return a->round < b->round ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static void sort_calls(void)
{
    bool sorted = true;
    for (uint32_t i = 0; i < group.call_count; i++) {
        queued_t *queued = &group.calls[i];
        use_t *lead = lead_of(queued->comm); /* the host device has none, nor any need of rounds */
        queued->round = lead != NULL && !is_message(queued) ? lead->calls++ : 0;
        sorted = sorted && (i == 0 || compare_calls(queued - 1, queued) < 0);
    }
    if (!sorted)
        qsort(group.calls, group.call_count, sizeof(*group.calls), compare_calls);
}

ncclResult_t shim_group_self_fault(const char *function)
{
    shim_set_last_error("%s: a message to the own rank needs a receive, or a send, of as many bytes in the same group",
                        function);
    return ncclInvalidUsage;
}

/* The first message to or from this rank itself, from number `at` on. */
static uint32_t next_self(const alg_call_t *call, uint32_t rank, bool send, uint32_t at)
{
    while (at < call->message_count && (call->messages[at].peer != rank || call->messages[at].send != send))
        at++;
    return at;
}

static bool selves_match(const alg_call_t *call, uint32_t rank)
{
    const uint32_t count = call->message_count;
    uint32_t send = next_self(call, rank, true, 0), recv = next_self(call, rank, false, 0);
    while (send < count && recv < count && call->messages[send].bytes == call->messages[recv].bytes) {
        send = next_self(call, rank, true, send + 1);
        recv = next_self(call, rank, false, recv + 1);
    }
    return send == count && recv == count;
}

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The first of a run of messages takes the others in. Returns the run's length. */
static uint32_t join_run(queued_t *run, uint32_t calls, alg_message_t *list)
{
    alg_call_t *call = &run->call.alg;
    uint32_t count = 0;
    for (; count < calls && is_message(&run[count]) && run[count].comm == run->comm; count++) {
        const alg_call_t *other = &run[count].call.alg;
        list[count] = run[count].call.message;
        call->blocks = most(call->blocks, other->blocks);
        call->threads = most(call->threads, other->threads);
        if (count > 0)
            shim_comm_release(run[count].comm);
    }
    call->messages = list;
    call->message_count = count;
    return count;
}

static void note_blocks(const queued_t *queued)
{
    use_t *lead = lead_of(queued->comm);
    if (lead == NULL)
        return;
    track_t *track = &lead->track[is_message(queued) ? SHIM_USE_MESSAGE : SHIM_USE_COLLECTIVE];
    track->blocks = most(track->blocks, queued->call.alg.blocks);
}

/* Sort the calls, and make the messages of each communicator one call. */
static ncclResult_t join_calls(void)
{
    const uint32_t count = group.call_count;
    uint32_t kept = 0, run = 0;
    ncclResult_t result = ncclSuccess;
    while (group.message_room < count)
        if (!grow((void **)&group.messages, group.message_room, &group.message_room, sizeof(alg_message_t)))
            return out_of_memory(group.calls[0].comm);
    sort_calls();
    for (uint32_t i = 0; i < count; i += run) {
        queued_t *queued = &group.calls[i];
        run = is_message(queued) ? join_run(queued, count - i, &group.messages[i]) : 1;
        if (is_message(queued) && !selves_match(&queued->call.alg, queued->comm->rank))
            result = shim_group_self_fault("ncclGroupEnd");
        note_blocks(queued);
        if (kept != i)
            group.calls[kept] = *queued;
        kept++;
    }
    group.call_count = kept;
    return result;
}

/* ---- CUDA: streams ------------------------------------------------------------------ */

/* Let the lead wait for the communicator's other streams. */
static int gather_streams(const use_t *lead)
{
    int error = 0;
    for (const use_t *use = lead + 1; use < group.uses + group.use_count && error == 0; use++)
        if (use->comm == lead->comm)
            error = shim_order_join(lead->stream, use->stream);
    return error;
}

/* Let the communicator's other streams wait for the lead. */
static int spread_streams(const use_t *lead)
{
    int error = 0;
    for (const use_t *use = lead + 1; use < group.uses + group.use_count && error == 0; use++)
        if (use->comm == lead->comm)
            error = shim_order_join(use->stream, lead->stream);
    return error;
}

/* Before the real end: the communicator's earlier work, then all its streams of the group. */
static int join_before(use_t *lead)
{
    int error = shim_order_enter(lead->comm, lead->stream, &lead->capture);
    if (error == 0)
        error = gather_streams(lead);
    if (error == 0 && lead->track[SHIM_USE_FORWARDED].used)
        error = spread_streams(lead);
    return error;
}

/* Another communicator's work goes to the same stream. */
static bool shares_stream(const use_t *lead)
{
    for (const use_t *use = group.uses; use < group.uses + group.use_count; use++)
        if (use->comm != lead->comm && use->stream == lead->stream && use->comm->device == lead->comm->device &&
            lead_of(use->comm) == use)
            return true;
    return false;
}

static int make_branch(use_t *lead, shim_use_t use, bool wanted)
{
    track_t *track = &lead->track[use];
    track->branched = track->used && wanted;
    const int side = use == SHIM_USE_MESSAGE;
    return track->branched ? shim_branch_make(lead->comm, side, lead->stream, &lead->capture, &track->branch) : 0;
}

/* Communicators may share a stream, so each of these steps is made for all of them before the next: a branch begins
 * when all have joined. */
static int branch_before(use_t *lead)
{
    const bool forwarded = lead->track[SHIM_USE_FORWARDED].used;
    const bool beside = forwarded || lead->track[SHIM_USE_COLLECTIVE].used;
    int error = make_branch(lead, SHIM_USE_COLLECTIVE, forwarded);
    return error != 0 ? error : make_branch(lead, SHIM_USE_MESSAGE, beside || shares_stream(lead));
}

/* Between the real end and our collectives' launches. */
static int branch_off(use_t *lead)
{
    track_t *track = &lead->track[SHIM_USE_COLLECTIVE];
    return track->branched ? shim_branch_begin(&track->branch) : 0;
}

/* After our launches. */
static int branch_after(use_t *lead)
{
    int error = 0;
    for (track_t *track = lead->track; track < lead->track + SHIM_USES && error == 0; track++)
        if (track->branched)
            error = shim_branch_end(&track->branch, lead->stream);
    return error;
}

/* In the end. What was only forwarded has been joined by the real NCCL. */
static int join_after(use_t *lead)
{
    const bool both = lead->track[SHIM_USE_FORWARDED].used && has_ours(lead);
    int error = both ? gather_streams(lead) : 0;
    if (error == 0 && has_ours(lead))
        error = spread_streams(lead);
    if (error == 0)
        error = shim_order_leave(lead->comm, lead->stream, &lead->capture, false);
    return error;
}

/* One step for every communicator of the group, on its device and under its lock. One that fails keeps no other from
 * it; the first error counts. */
static ncclResult_t for_each_lead(int (*step)(use_t *lead))
{
    ncclResult_t result = ncclSuccess;
    for (uint32_t i = 0; i < group.use_count; i++) {
        use_t *lead = &group.uses[i];
        if (lead_of(lead->comm) != lead)
            continue;
        int previous;
        int error = shim_device_enter(lead->comm->device, &previous);
        if (error == 0) {
            pthread_mutex_lock(&lead->comm->lock);
            error = step(lead);
            pthread_mutex_unlock(&lead->comm->lock);
            shim_device_leave(lead->comm->device, previous);
        }
        if (error == 0)
            continue;
        ncclResult_t failed = shim_launch_failed(error, "ncclGroupEnd");
        if (has_ours(lead))
            end_comm(lead->comm, failed);
        if (result == ncclSuccess)
            result = failed;
    }
    return result;
}

/* ---- CUDA: the end ------------------------------------------------------------------ */

static void nap(unsigned round)
{
    struct timespec time = {.tv_nsec = round < 100 ? 10000 : 200000};
    nanosleep(&time, NULL);
}

/* Another thread may abort the communicator, which frees the handle: the abort waits for polls under way, and none
 * begins after it. */
static ncclResult_t poll_real(const shim_real_t *real, shim_comm_t *comm, ncclResult_t *state)
{
    ncclResult_t result = ncclInvalidUsage;
    atomic_fetch_add(&comm->polls, 1);
    if (atomic_load(&comm->phase) != SHIM_COMM_DEAD)
        result = real->ncclCommGetAsyncError(atomic_load(&comm->handle), state);
    else
        shim_set_last_error("ncclGroupEnd: the communicator was aborted while its calls waited");
    atomic_fetch_sub(&comm->polls, 1);
    return result;
}

void shim_group_let_polls_end(shim_comm_t *comm)
{
    for (unsigned round = 0; atomic_load(&comm->polls) > 0 && round < MOST_NAPS; round++)
        nap(round);
}

/* Non-blocking communicators get their work from a thread of the real NCCL. Ours must come after it,
 * as on every other rank. */
static ncclResult_t wait_forwarded(const shim_real_t *real)
{
    for (uint32_t i = 0; i < group.use_count; i++) {
        shim_comm_t *comm = group.uses[i].comm;
        if (!group.uses[i].track[SHIM_USE_FORWARDED].used || comm->blocking)
            continue;
        ncclResult_t state = ncclInProgress;
        for (unsigned round = 0; state == ncclInProgress; round++) {
            if (round > 0)
                nap(round);
            ncclResult_t result = poll_real(real, comm, &state);
            if (result != ncclSuccess)
                return result;
        }
        if (state != ncclSuccess)
            return state;
    }
    return ncclSuccess;
}

/* Where a call of ours goes. */
static ncclResult_t launch_on(const use_t *lead, const queued_t *queued, const track_t *track, uint32_t beside)
{
    const bool messages = track == &lead->track[SHIM_USE_MESSAGE];
    const shim_launch_t launch = {.comm = queued->comm,
                                  .algorithm = queued->call.algorithm,
                                  .call = &queued->call.alg,
                                  .stream = track->branched ? track->branch.stream : lead->stream,
                                  .capture = track->branched ? &track->branch.capture : &lead->capture,
                                  .beside = beside,
                                  .joined = messages};
    pthread_mutex_lock(&queued->comm->lock);
    ncclResult_t result = shim_launch(&launch);
    pthread_mutex_unlock(&queued->comm->lock);
    return result;
}

/* Messages have their branch to themselves while they launch, for what comes next on its stream is not theirs. */
static ncclResult_t launch_messages(use_t *lead, const queued_t *queued)
{
    track_t *track = &lead->track[SHIM_USE_MESSAGE];
    int error = track->branched ? shim_branch_begin(&track->branch) : 0;
    if (error != 0)
        return shim_launch_failed(error, "ncclGroupEnd");
    ncclResult_t result = launch_on(lead, queued, track, lead->track[SHIM_USE_COLLECTIVE].blocks);
    error = track->branched ? shim_branch_pause(&track->branch) : 0;
    return result == ncclSuccess && error != 0 ? shim_launch_failed(error, "ncclGroupEnd") : result;
}

static ncclResult_t launch_one(const queued_t *queued)
{
    use_t *lead = lead_of(queued->comm);
    int previous;
    int error = shim_device_enter(queued->comm->device, &previous);
    if (error != 0)
        return shim_launch_failed(error, "ncclGroupEnd");
    ncclResult_t result = is_message(queued) ? launch_messages(lead, queued)
                                             : launch_on(lead, queued, &lead->track[SHIM_USE_COLLECTIVE],
                                                         lead->track[SHIM_USE_MESSAGE].blocks);
    shim_device_leave(queued->comm->device, previous);
    return result;
}

static ncclResult_t launch_all(const shim_real_t *real, bool in_progress)
{
    if (in_progress && group.call_count == 0)
        return ncclSuccess; /* nothing of ours has to come after it */
    ncclResult_t result = wait_forwarded(real);
    if (result == ncclSuccess)
        result = for_each_lead(branch_off);
    uint32_t launched = 0;
    while (launched < group.call_count && result == ncclSuccess) {
        result = launch_one(&group.calls[launched]);
        launched += result == ncclSuccess;
    }
    end_comms_from(launched, result);
    /* What launched is ordered, whatever failed. */
    ncclResult_t merged = for_each_lead(branch_after), joined = for_each_lead(join_after);
    if (result == ncclSuccess)
        result = merged;
    return result != ncclSuccess ? result : joined;
}

/* The real NCCL does not know of an error that Shunt found; a call without a communicator makes it
 * cancel its part of the group. */
static void poison_real(const shim_real_t *real)
{
    real->ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, NULL, NULL);
}

/* The real NCCL estimates the time of its group, so it gets the calls that Shunt would run, too. It finds
 * what is wrong with one at the end. */
static void queue_in_real(const shim_real_t *real)
{
    for (uint32_t i = 0; i < group.call_count; i++) {
        shim_call_t call = group.calls[i].call;
        if (call.alg.op == ALG_PREMUL_SUM)
            call.op = ncclSum; /* the operator may be gone */
        call.forward(real, &call);
    }
}

/* `info` is NULL for an end that is no simulation. */
static ncclResult_t real_end(const shim_real_t *real, ncclSimInfo_t *info)
{
    return info != NULL ? real->ncclGroupSimulateEnd(info) : real->ncclGroupEnd();
}

static ncclResult_t end_cuda(ncclSimInfo_t *info)
{
    const shim_real_t *real = shim_real_need("ncclGroupEnd");
    bool simulate = info != NULL;
    if (real == NULL)
        return ncclSystemError;
    if (simulate && real->version < SIMULATE_VERSION)
        return real->ncclGroupSimulateEnd(info); /* refused; the group stays open */
    if (group.depth != 1) {                      /* an inner one; or one too many, for the real one to refuse */
        if (group.depth > 0)
            group.depth--;
        return real_end(real, info);
    }
    if (group.error == ncclSuccess && !simulate)
        shim_group_check(join_calls());
    if (group.error == ncclSuccess && !simulate)
        shim_group_check(for_each_lead(join_before));
    if (group.error == ncclSuccess && !simulate)
        shim_group_check(for_each_lead(branch_before));
    ncclResult_t own = group.error;
    if (own != ncclSuccess)
        poison_real(real);
    else if (simulate)
        queue_in_real(real);
    ncclResult_t result = real_end(real, info);
    group.depth = 0;
    if (own != ncclSuccess)
        result = own;
    result = shim_attach_after_group(result);
    if (!simulate && (result == ncclSuccess || result == ncclInProgress)) {
        ncclResult_t launched = launch_all(real, result == ncclInProgress);
        if (launched != ncclSuccess)
            result = launched;
    } else if (!simulate && result != ncclInvalidArgument && result != ncclInvalidUsage) {
        end_comms_from(0, result);
    }
    drop_all(&group);
    return result;
}

/* ---- Host device: the end ------------------------------------------------------------ */

/* The collectives of one communicator, or its messages. */
typedef struct lane {
    const group_t *group;
    shim_comm_t *comm;
    bool messages;
    ncclResult_t result;
    pthread_t thread;
    bool started;
} lane_t;

static void *run_lane(void *argument)
{
    lane_t *lane = argument;
    const group_t *g = lane->group;
    for (uint32_t i = 0; i < g->call_count && lane->result == ncclSuccess; i++)
        if (g->calls[i].comm == lane->comm && is_message(&g->calls[i]) == lane->messages)
            lane->result = shim_host_run(&g->calls[i].call);
    return NULL;
}

static uint32_t make_lanes(lane_t *lanes)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < group.call_count; i++) {
        const queued_t *queued = &group.calls[i];
        uint32_t l = 0;
        while (l < count && (lanes[l].comm != queued->comm || lanes[l].messages != is_message(queued)))
            l++;
        if (l == count)
            lanes[count++] = (lane_t){.group = &group, .comm = queued->comm, .messages = is_message(queued)};
    }
    return count;
}

/* The program's signals are for the program's threads. */
static void start_lane(lane_t *lane)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    lane->started = pthread_create(&lane->thread, NULL, run_lane, lane) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!lane->started)
        lane->result = out_of_memory(lane->comm);
}

static ncclResult_t run_all(void)
{
    if (group.call_count == 0)
        return ncclSuccess;
    lane_t *lanes = calloc(group.call_count, sizeof(*lanes));
    if (lanes == NULL) {
        end_comms_from(0, ncclSystemError);
        return out_of_memory(group.calls[0].comm);
    }
    uint32_t count = make_lanes(lanes);
    for (uint32_t l = 0; l + 1 < count; l++)
        start_lane(&lanes[l]);
    run_lane(&lanes[count - 1]);
    ncclResult_t result = ncclSuccess;
    for (uint32_t l = 0; l < count; l++) {
        if (lanes[l].started)
            pthread_join(lanes[l].thread, NULL);
        if (result == ncclSuccess)
            result = lanes[l].result;
    }
    free(lanes);
    return result;
}

static ncclResult_t end_host(ncclSimInfo_t *info)
{
    if (group.depth == 0) {
        shim_set_last_error("ncclGroupEnd: no group has been started");
        return ncclInvalidUsage;
    }
    if (--group.depth > 0)
        return ncclSuccess;
    if (group.error == ncclSuccess && info != NULL && info->magic != SIMULATE_MAGIC) {
        shim_set_last_error("ncclGroupSimulateEnd: simInfo was not made with NCCL_SIM_INFO_INITIALIZER");
        group.error = ncclInvalidArgument;
    }
    if (group.error == ncclSuccess && info == NULL)
        group.error = join_calls();
    ncclResult_t result = shim_attach_after_group(group.error);
    if (result == ncclSuccess && info == NULL)
        result = run_all();
    drop_all(&group);
    return result;
}

/* ---- The entry points ------------------------------------------------------------------ */

SHIM_PUBLIC(ncclGroupStart);
ncclResult_t ncclGroupStart(void)
{
    ncclResult_t result = ncclSuccess;
    if (!shim_host_mode()) {
        const shim_real_t *real = shim_real_need("ncclGroupStart");
        if (real == NULL)
            return ncclSystemError;
        result = real->ncclGroupStart();
    }
    if (result == ncclSuccess)
        group.depth++;
    return result;
}

SHIM_PUBLIC(ncclGroupEnd);
ncclResult_t ncclGroupEnd(void)
{
    bool outermost = group.depth == 1;
    uint64_t start_ns = outermost ? shim_trace_begin() : 0;
    ncclResult_t result = shim_host_mode() ? end_host(NULL) : end_cuda(NULL);
    if (start_ns != 0)
        shim_trace_end(&(shim_trace_call_t){
            .start_ns = start_ns, .function = "ncclGroupEnd", .type = -1, .result = (int32_t)result});
    return result;
}

/* With NULL it ends the group like ncclGroupEnd, as the real one's does. */
SHIM_PUBLIC(ncclGroupSimulateEnd);
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    return shim_host_mode() ? end_host(simInfo) : end_cuda(simInfo);
}
