/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_print.c - prints communicators and ranks as text and as JSON.
 */
#include <inttypes.h>

#include "tools/base/json.h"
#include "tools/watch/watch.h"

static const char *const state_names[] = {"setting-up", "attached", "forwarded", "ended"};

static uint64_t ago_ns(const record_made_t *made)
{
    const uint64_t ns = watch_now_ns();
    return ns > made->time_ns ? ns - made->time_ns : 0;
}

static unsigned long long seconds(uint64_t ns)
{
    return (ns + 500000000u) / 1000000000u;
}

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
        record_sign_text(&rank->waits.sign, call, sizeof call);
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
    const record_sign_t awaited =
        record_awaited(comm->waiter->view.slot, &comm->waiter->waits, comm->judged > 0 ? comm->rank : NULL);
    record_sign_text(&awaited, call, sizeof call);
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

/* The number, or null. */
static void json_ms(tool_json_t *json, const char *name, bool known, uint64_t ns)
{
    if (known) {
        tool_json_value(json, name, "%" PRIu64, ns / 1000000u);
    } else {
        tool_json_text(json, name, NULL);
    }
}

static void json_rank(tool_json_t *json, const watch_rank_t *rank)
{
    char last[200] = "", waits[200] = "";
    const bool is_waiting = rank->wait_id != 0;
    if (rank->has_last) {
        record_made_text(&rank->last, last, sizeof last);
    }
    if (is_waiting) {
        record_sign_text(&rank->waits.sign, waits, sizeof waits);
    }
    tool_json_begin(json, NULL, '{');
    tool_json_value(json, "rank", "%u", rank->rank);
    tool_json_value(json, "pid", "%" PRId64, rank->view.pid);
    tool_json_value(json, "device", "%d", rank->device);
    tool_json_word(json, "state", rank->state <= RECORD_ENDED ? state_names[rank->state] : NULL);
    tool_json_value(json, "calls", "%" PRIu64, rank->calls);
    tool_json_word(json, "last_call", last);
    tool_json_word(json, "algorithm", rank->has_last ? rank->algorithm : NULL);
    json_ms(json, "last_call_ms_ago", rank->has_last, ago_ns(&rank->last));
    tool_json_word(json, "waits_in", waits);
    json_ms(json, "waited_ms", is_waiting, rank->wait_ns);
    tool_json_end(json, '}');
}

static void json_judged(tool_json_t *json, const record_rank_t *rank)
{
    char cause[600];
    record_cause_text(rank, cause, sizeof cause);
    tool_json_begin(json, NULL, '{');
    tool_json_value(json, "rank", "%u", rank->rank);
    tool_json_value(json, "pid", "%" PRId64, rank->pid);
    tool_json_text(json, "cause", record_cause_name(rank->cause));
    tool_json_text(json, "text", cause);
    tool_json_end(json, '}');
}

static void json_comm(tool_json_t *json, const watch_sight_t *sight, const watch_comm_t *comm)
{
    const watch_rank_t *first = &sight->rank[comm->from];
    char name[20];
    snprintf(name, sizeof name, "%016" PRIx64, first->comm);
    tool_json_begin(json, NULL, '{');
    tool_json_text(json, "communicator", name);
    tool_json_value(json, "ranks", "%u", first->nranks);
    tool_json_begin(json, "members", '[');
    for (uint32_t i = comm->from; i < comm->to; i++) {
        json_rank(json, &sight->rank[i]);
    }
    tool_json_end(json, ']');
    if (comm->waiter != NULL) {
        tool_json_value(json, "waiting_rank", "%u", comm->waiter->rank);
    } else {
        tool_json_text(json, "waiting_rank", NULL);
    }
    tool_json_begin(json, "others", '[');
    for (uint32_t i = 0; i < comm->judged; i++) {
        json_judged(json, &comm->rank[i]);
    }
    tool_json_end(json, ']');
    tool_json_end(json, '}');
}

void watch_print_json(const watch_sight_t *sight, const watch_comm_t *comm, int comms, FILE *to)
{
    tool_json_t json = {.file = to};
    tool_json_begin(&json, NULL, '{');
    tool_json_begin(&json, "communicators", '[');
    for (int i = 0; i < comms; i++) {
        json_comm(&json, sight, &comm[i]);
    }
    tool_json_end(&json, ']');
    tool_json_end(&json, '}');
}
