/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - texts of calls and causes (judge.h). */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "shim/record/judge.h"

/* Like snprintf, but returns what was written. */
static size_t put(char *text, size_t capacity, const char *format, ...) __attribute__((format(printf, 3, 4)));
static size_t put(char *text, size_t capacity, const char *format, ...)
{
    va_list arguments;
    if (capacity == 0)
        return 0;
    va_start(arguments, format);
    const int length = vsnprintf(text, capacity, format, arguments);
    va_end(arguments);
    return length < 0 ? 0 : (size_t)length < capacity ? (size_t)length : capacity - 1;
}

size_t record_number_text(uint64_t number, char *text, size_t capacity)
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%" PRIu64, number);
    size_t at = 0;
    for (int i = 0; i < length && at + 1 < capacity; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[at++] = ',';
        if (at + 1 < capacity)
            text[at++] = digits[i];
    }
    text[at] = '\0';
    return at;
}

static const char *collective_text(uint32_t collective)
{
    static const char *const names[] = {"all-reduce", "reduce-scatter", "reduce",  "all-gather",   "all-to-all",
                                        "broadcast",  "gather",         "scatter", "send/receive", "send",
                                        "receive",    "dispatch",       "combine"};
    enum { NAMES = sizeof names / sizeof names[0] };
    _Static_assert((int)NAMES == (int)RECORD_COMBINE + 1, "names");
    return collective < NAMES ? names[collective] : "call";
}

static const char *type_text(uint32_t type)
{
    static const char *const names[] = {"int8", "uint8", "int32", "uint32", "int64",    "uint64",
                                        "fp16", "fp32",  "fp64",  "bf16",   "fp8 e4m3", "fp8 e5m2"};
    return type < ALG_TYPE_COUNT ? names[type] : "elements";
}

static const char *op_text(uint32_t op)
{
    static const char *const names[] = {"sum", "product", "maximum", "minimum", "average", "the program's operator"};
    return op < sizeof names / sizeof names[0] ? names[op] : "another operator";
}

size_t record_sign_text(const record_sign_t *sign, char *text, size_t capacity)
{
    char number[32], count[32];
    const bool experts = record_is_experts(sign->collective), unknown = sign->count == 0;
    const char *captured = sign->kind == RECORD_CAPTURED ? "captured " : "", *name = collective_text(sign->collective);
    const char *unit = experts ? "tokens" : type_text(sign->type);
    record_number_text(sign->number, number, sizeof number);
    record_number_text(sign->count, count, sizeof count);
    if (experts && unknown)
        return put(text, capacity, "%s%s #%s", captured, name, number);
    if (unknown)
        return put(text, capacity, "%s%s #%s of %s", captured, name, number, unit);
    return put(text, capacity, "%s%s #%s of %s %s", captured, name, number, count, unit);
}

size_t record_made_text(const record_made_t *made, char *text, size_t capacity)
{
    const uint32_t collective = made->sign.collective;
    size_t length = record_sign_text(&made->sign, text, capacity);
    if (collective < ALG_COLLECTIVE_COUNT && alg_collective_reduces((alg_collective_t)collective))
        length += put(text + length, capacity - length, ", %s", op_text(made->sign.op));
    if (collective < ALG_COLLECTIVE_COUNT && alg_collective_rooted((alg_collective_t)collective))
        length += put(text + length, capacity - length, ", root %u", made->place);
    if (collective == RECORD_SEND || collective == RECORD_RECV)
        length += put(text + length, capacity - length, ", peer %u", made->place);
    return length;
}

size_t record_who_text(const record_rank_t *rank, char *text, size_t capacity)
{
    size_t length = put(text, capacity, "rank %u", rank->rank);
    if (rank->pid != 0)
        length += put(text + length, capacity - length, " (pid %" PRId64, rank->pid);
    if (rank->pid != 0 && rank->device >= 0)
        length += put(text + length, capacity - length, ", GPU %d", rank->device);
    if (rank->pid != 0)
        length += put(text + length, capacity - length, ")");
    return length;
}

static uint64_t seconds(uint64_t ns)
{
    return (ns + UINT64_C(500000000)) / UINT64_C(1000000000);
}

static size_t last_text(const record_rank_t *rank, char *text, size_t capacity)
{
    char call[160];
    if (rank->unread)
        return put(text, capacity, "its calls cannot be read");
    if (!rank->has_last)
        return put(text, capacity, "it has made no call on this communicator");
    record_sign_text(&rank->last.sign, call, sizeof call);
    if (rank->ended)
        return put(text, capacity, "its last call was %s, which ended %" PRIu64 " s ago", call,
                   seconds(rank->ended_ago_ns));
    return put(text, capacity, "its last call was %s, %" PRIu64 " s ago", call, seconds(rank->last_ago_ns));
}

static size_t elsewhere_text(const record_rank_t *rank, char *text, size_t capacity)
{
    char call[160];
    if (!rank->elsewhere)
        return 0;
    record_sign_text(&rank->waits, call, sizeof call);
    if (rank->same_comm)
        return put(text, capacity, "; it waits in %s", call);
    return put(text, capacity, "; it waits in %s of another communicator (%u ranks)", call, rank->waits_ranks);
}

/* The rank's last call is in a group, perhaps unfinished. */
static bool is_grouped(const record_rank_t *rank)
{
    return rank->has_last && (rank->last.flags & RECORD_GROUPED);
}

size_t record_cause_text(const record_rank_t *rank, char *text, size_t capacity)
{
    static const char *const heads[RECORD_CAUSES] = {[RECORD_DEAD] = "its process is gone; ",
                                                     [RECORD_LEFT] = "it has ended or aborted the communicator",
                                                     [RECORD_HELD] =
                                                         "its process is stopped (SIGSTOP, or a debugger); ",
                                                     [RECORD_OTHER_CALL] = "it has called ",
                                                     [RECORD_NOT_CALLED] = "it has not made this call: ",
                                                     [RECORD_NO_MESSAGE] = "it waits in no message: ",
                                                     [RECORD_NOT_BEGUN] = "it has made the call, but has not begun it",
                                                     [RECORD_UNSEEN] = "what it does cannot be seen from here",
                                                     [RECORD_IN_IT] = "it is in the call",
                                                     [RECORD_APART] = "the call does not wait for it"};
    static const char *const why[2][2] = {
        {"", ": its group may not have ended"},
        {": its GPU still computes, or its stream is held up",
         ": its GPU still computes, its stream is held up, or its group has not ended"}};
    char call[200];
    size_t length = put(text, capacity, "%s", heads[rank->cause]);
    if (rank->cause == RECORD_OTHER_CALL) {
        record_made_text(&rank->other, call, sizeof call);
        return length + put(text + length, capacity - length, "%s in its place", call);
    }
    if (rank->cause == RECORD_LEFT || rank->cause >= RECORD_UNSEEN)
        return length;
    if (rank->cause == RECORD_NOT_BEGUN)
        length += put(text + length, capacity - length, "%s; ", why[rank->device >= 0][is_grouped(rank)]);
    length += last_text(rank, text + length, capacity - length);
    return length + elsewhere_text(rank, text + length, capacity - length);
}

const char *record_cause_name(record_cause_t cause)
{
    static const char *const names[RECORD_CAUSES] = {"dead",       "left",      "stopped", "other-call", "not-called",
                                                     "no-message", "not-begun", "unseen",  "in-it",      "apart"};
    return cause < RECORD_CAUSES ? names[cause] : "";
}
