/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_print.c - what was found, as text and as JSON.
 */
#include <inttypes.h>
#include <time.h>

#include "tools/watch/watch.h"

static const char *const state_names[] = {"setting-up", "attached", "forwarded", "ended"};

static uint64_t ago_ns(const record_made_t *made)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return ns > made->time_ns ? ns - made->time_ns : 0;
}

static unsigned long long seconds(uint64_t ns)
{
    return (ns + 500000000u) / 1000000000u;
}

/* ---- Text ---- */

static void print_place(const watch_rank_t *rank, FILE *to)
{
    fprintf(to, "  rank %u  pid %" PRId64, rank->rank, rank->view.pid);
    if (rank->device >= 0) {
        fprintf(to, "  GPU %d", rank->device);
    }
}

static void print_rank(const watch_rank_t *rank, FILE *to)
{
    char call[200];
    print_place(rank, to);
    if (rank->wait_id != 0) {
        record_sign_text(&rank->waits, call, sizeof call);
        fprintf(to, "  waits in %s for %llu s", call, seconds(rank->wait_ns));
    }
    if (rank->has_last) {
        record_made_text(&rank->last, call, sizeof call);
        fprintf(to, "  last call: %s (%s), %llu s ago\n", call, rank->algorithm, seconds(ago_ns(&rank->last)));
    } else {
        fprintf(to, "  no call yet\n");
    }
}

static void print_judged(const record_rank_t *rank, FILE *to)
{
    char who[96], cause[600];
    record_who_text(rank, who, sizeof who);
    record_cause_text(rank, cause, sizeof cause);
    fprintf(to, "  %s: %s\n", who, cause);
}

static void print_comm(const watch_sight_t *sight, const watch_comm_t *comm, FILE *to)
{
    char call[200];
    const watch_rank_t *first = &sight->rank[comm->from];
    fprintf(to, "communicator %016" PRIx64 ", %u ranks", first->comm, first->nranks);
    if (first->state == RECORD_FORWARDS) {
        fprintf(to, ", forwarded to NCCL");
    }
    if (comm->waiter == NULL) {
        fprintf(to, "\n");
        for (uint32_t i = comm->from; i < comm->to; i++) {
            print_rank(&sight->rank[i], to);
        }
        return;
    }
    record_sign_text(&comm->waiter->waits, call, sizeof call);
    fprintf(to, ": %s has waited %llu s\n", call, seconds(comm->waiter->wait_ns));
    for (uint32_t i = 0; i < comm->judged; i++) {
        print_judged(&comm->rank[i], to);
    }
    print_rank(comm->waiter, to);
}

void watch_print(const watch_sight_t *sight, const watch_comm_t *comm, int comms, FILE *to)
{
    for (int i = 0; i < comms; i++) {
        print_comm(sight, &comm[i], to);
    }
}

/* ---- JSON: the words have no character that it escapes ---- */

static void json_rank(const watch_rank_t *rank, FILE *to)
{
    char call[200];
    fprintf(to, "{\"rank\":%u,\"pid\":%" PRId64 ",\"device\":%d,\"state\":\"%s\",\"calls\":%" PRIu64, rank->rank,
            rank->view.pid, rank->device, rank->state <= RECORD_ENDED ? state_names[rank->state] : "", rank->calls);
    if (rank->has_last) {
        record_made_text(&rank->last, call, sizeof call);
        fprintf(to, ",\"last_call\":\"%s\",\"algorithm\":\"%s\",\"last_call_ms_ago\":%" PRIu64, call, rank->algorithm,
                ago_ns(&rank->last) / 1000000u);
    }
    if (rank->wait_id != 0) {
        record_sign_text(&rank->waits, call, sizeof call);
        fprintf(to, ",\"waits_in\":\"%s\",\"waited_ms\":%" PRIu64, call, rank->wait_ns / 1000000u);
    }
    fprintf(to, "}");
}

static void json_judged(const record_rank_t *rank, FILE *to)
{
    char cause[600];
    record_cause_text(rank, cause, sizeof cause);
    fprintf(to, "{\"rank\":%u,\"pid\":%" PRId64 ",\"cause\":\"%s\",\"text\":\"%s\"}", rank->rank, rank->pid,
            record_cause_name(rank->cause), cause);
}

static void json_comm(const watch_sight_t *sight, const watch_comm_t *comm, FILE *to)
{
    const watch_rank_t *first = &sight->rank[comm->from];
    fprintf(to, "{\"communicator\":\"%016" PRIx64 "\",\"ranks\":%u,\"members\":[", first->comm, first->nranks);
    for (uint32_t i = comm->from; i < comm->to; i++) {
        fprintf(to, "%s", i > comm->from ? "," : "");
        json_rank(&sight->rank[i], to);
    }
    fprintf(to, "]");
    if (comm->waiter != NULL) {
        fprintf(to, ",\"waiting_rank\":%u,\"others\":[", comm->waiter->rank);
        for (uint32_t i = 0; i < comm->judged; i++) {
            fprintf(to, "%s", i > 0 ? "," : "");
            json_judged(&comm->rank[i], to);
        }
        fprintf(to, "]");
    }
    fprintf(to, "}");
}

void watch_print_json(const watch_sight_t *sight, const watch_comm_t *comm, int comms, FILE *to)
{
    fprintf(to, "{\"communicators\":[");
    for (int i = 0; i < comms; i++) {
        fprintf(to, "%s", i > 0 ? "," : "");
        json_comm(sight, &comm[i], to);
    }
    fprintf(to, "]}\n");
}
