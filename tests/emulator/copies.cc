/* SPDX-License-Identifier: Apache-2.0 */
/* copies.cc - see copies.h. */
#include "copies.h"

#include <string.h>

#include <algorithm>

enum { PIECE = 16, PIECES_AT_ONCE = 16, LATENESS = 32, SEEN_LATE = 4096 };

typedef enum piece { UNREAD, READ, WRITTEN } piece_t;

/* ---- Barriers ---- */

typedef struct barrier {
    uint8_t arrivals, pending;
    uint16_t phase;
    int32_t bytes;
} barrier_t;
static_assert(sizeof(barrier_t) == 8, "as an mbarrier");

static barrier_t *barrier_at(copies_t *c, uint32_t at)
{
    return (barrier_t *)(c->memory.data() + at);
}

static void end_phase(barrier_t *b)
{
    if (b->pending > 0 || b->bytes != 0)
        return;
    b->pending = b->arrivals;
    b->phase++;
}

const char *copies_barrier_make(copies_t *c, uint32_t barrier, uint32_t arrivals)
{
    barrier_t *b = barrier_at(c, barrier);
    if (b->arrivals)
        return "a barrier is made twice";
    *b = barrier_t{(uint8_t)arrivals, (uint8_t)arrivals, 0, 0};
    return NULL;
}

const char *copies_arrive(copies_t *c, uint32_t barrier, uint32_t bytes)
{
    barrier_t *b = barrier_at(c, barrier);
    if (!b->arrivals)
        return "arrives at no barrier";
    if (b->pending == 0)
        return "too many arrive at a barrier";
    b->bytes += (int32_t)bytes;
    b->pending--;
    end_phase(b);
    return NULL;
}

const char *copies_over(const copies_t *c, uint32_t barrier, uint32_t parity, bool *over)
{
    const barrier_t *b = (const barrier_t *)(c->memory.data() + barrier);
    *over = (b->phase & 1u) != parity;
    return b->arrivals ? NULL : "waits at no barrier";
}

/* ---- Copies ---- */

static void begin(copies_t *c, copy_t *y)
{
    y->unread = y->unwritten = y->bytes / PIECE;
    y->piece.assign(y->unread, UNREAD);
    y->data.resize(y->bytes);
    c->under_way.emplace_back(y);
}

void copies_in(copies_t *c, uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    copy_t *y = new copy_t();
    y->in = true;
    y->barrier = barrier;
    y->bytes = bytes;
    y->to = c->memory.data() + to;
    y->from = (const uint8_t *)from;
    begin(c, y);
}

void copies_out(copies_t *c, uint32_t lane, void *to, uint32_t from, uint32_t bytes)
{
    copy_t *y = new copy_t();
    y->lane = lane;
    y->group = c->group[lane];
    y->bytes = bytes;
    y->to = (uint8_t *)to;
    y->from = c->memory.data() + from;
    begin(c, y);
}

/* Advance piece i from unread to read, or from read to written. */
static void advance(copy_t *y, uint32_t i)
{
    if (y->piece[i] == UNREAD) {
        memcpy(&y->data[i * PIECE], y->from + i * PIECE, PIECE);
        y->unread--;
        y->piece[i] = READ;
    } else if (y->piece[i] == READ) {
        memcpy(y->to + i * PIECE, &y->data[i * PIECE], PIECE);
        y->unwritten--;
        y->piece[i] = WRITTEN;
    }
}

static void read_all(copy_t *y)
{
    for (uint32_t i = 0; i < y->piece.size(); i++) {
        if (y->piece[i] == UNREAD)
            advance(y, i);
    }
}

static void write_all(copy_t *y)
{
    read_all(y);
    for (uint32_t i = 0; i < y->piece.size(); i++)
        advance(y, i);
}

/* Forget the copies that are written. */
static void forget(copies_t *c)
{
    for (const auto &y : c->under_way) {
        if (y->unwritten == 0 && y->in) {
            barrier_at(c, y->barrier)->bytes -= (int32_t)y->bytes;
            end_phase(barrier_at(c, y->barrier));
        }
    }
    const auto written = [](const std::unique_ptr<copy_t> &y) { return y->unwritten == 0; };
    c->under_way.erase(std::remove_if(c->under_way.begin(), c->under_way.end(), written), c->under_way.end());
}

void copies_wait(copies_t *c, uint32_t lane, uint32_t groups_left, bool done)
{
    for (const auto &y : c->under_way) {
        if (y->in || y->lane != lane || y->group + groups_left >= c->group[lane])
            continue;
        read_all(y.get());
        y->complete = y->complete || done;
    }
}

void copies_tell(copies_t *c, uint32_t lane)
{
    c->tells++;
    for (const auto &y : c->under_way) {
        if (!y->in && y->lane == lane && y->complete && y->tell == 0)
            y->tell = c->tells;
    }
}

void copies_fence(copies_t *c, uint32_t lane)
{
    for (const auto &y : c->under_way) {
        if (y->complete && (y->lane == lane || (y->tell > 0 && y->tell <= c->told[lane])))
            write_all(y.get());
    }
    forget(c);
}

void copies_pass_time(copies_t *c, uint32_t (*below)(uint32_t n))
{
    copy_t *y = c->under_way[below((uint32_t)c->under_way.size())].get();
    if (y->lateness == 0)
        y->lateness = below(4) ? 1 : LATENESS;
    if (!y->in && y->unread == 0 && y->seen == 0)
        y->seen = below(4) ? LATENESS : SEEN_LATE; /* always late: fences hurry them */
    if (below(y->seen > 0 ? y->seen : y->lateness) > 0)
        return;
    const uint32_t pieces = (uint32_t)y->piece.size(), first = below(pieces);
    uint32_t count = 1 + below(PIECES_AT_ONCE);
    for (uint32_t i = 0; i < pieces && count > 0; i++) {
        const uint32_t at = (first + i) % pieces;
        count -= y->piece[at] != WRITTEN;
        advance(y, at);
    }
    if (y->unwritten == 0)
        forget(c);
}

bool copies_use_memory(const copies_t *c)
{
    for (const auto &y : c->under_way) {
        if (y->in || y->unread > 0)
            return true;
    }
    return false;
}
