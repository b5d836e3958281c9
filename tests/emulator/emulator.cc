/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emulator.cc - fibers, their order and their stores: see emulator.h. All in the thread
 * of the program that synchronises a stream.
 */
#include "emulator.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <memory>
#include <vector>

#include "copies.h"
#include "streams.h"

enum { WARP = 32, STACK_BYTES = 48 << 10, COLOURS = 64, MOST_STORES = 24, STEP_NS = 100, LATE = 256, SHARED_PAD = 16 };

typedef enum kind { STORE, ADD, OR } kind_t;

/* Made, but not visible to others yet. */
typedef struct pending {
    uint8_t *to;
    uint64_t value[2];
    uint32_t bytes;
    kind_t kind;
    bool late;
    uint32_t warp_meets, block_meets; /* of its lane, when it was made */
} pending_t;

typedef enum state { RUNS, MEETS_WARP, MEETS_BLOCK, WAITS, ENDED } state_t;

struct block;
struct grid;

typedef struct meeting {
    uint32_t living, waiting, value;
    int result; /* EMULATOR_ANY, EMULATOR_LEAST or EMULATOR_SUM */
    bool left;  /* one of its lanes, before the end */
} meeting_t;

/* What each switch touches comes first, side by side. */
typedef struct fiber {
    jmp_buf at;
    state_t state;
    bool begun, let_in;
    bool listed;    /* among those with stores, though there may be none left */
    uint32_t index; /* among those that run */
    uint32_t warp_meets, block_meets, met;
    uint32_t stores;
    block *its_block;
    emulator_lane_t lane;
    grid *its_grid;
    char *stack;
    pending_t store[MOST_STORES];
} fiber_t;

struct block {
    std::vector<fiber_t *> fibers;
    std::vector<meeting_t> warps;
    meeting_t all;
    copies_t copies;
    bool copying;      /* among those with copies, though there may be none left */
    uint32_t slowness; /* it runs once in so many turns */
};

struct grid {
    uint32_t left, closed; /* lanes that have not ended; that have neither ended nor let the successor in */
    grid *before;          /* that it may run beside; NULL: it has ended */
    grid *behind;
    std::vector<std::unique_ptr<block>> blocks;
    std::function<void()> kernel;
};

static uint64_t g_random = 1;
static uint64_t g_steps;
static fiber_t *g_now;
static jmp_buf g_scheduler;
static std::vector<fiber_t *> g_running, g_with_stores;
static std::vector<block *> g_copying;
static std::vector<char *> g_stacks;
static std::list<std::unique_ptr<grid>> g_grids;

static uint32_t below(uint32_t n)
{
    g_random = g_random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((g_random >> 32) * n >> 32);
}

static void fail(const char *what)
{
    fprintf(stderr, "emulator: %s (block %u, thread %u)\n", what, g_now ? g_now->lane.block : 0,
            g_now ? g_now->lane.thread : 0);
    fflush(NULL);
    _exit(1);
}

static void fail_if(const char *what)
{
    if (what)
        fail(what);
}

/* ---- Stores ---- */

static void land(fiber_t *f, uint32_t i)
{
    pending_t *p = &f->store[i];
    if (p->kind == STORE)
        memcpy(p->to, p->value, p->bytes);
    else if (p->kind == ADD)
        *(uint64_t *)p->to += p->value[0];
    else
        *(uint64_t *)p->to |= p->value[0];
    *p = f->store[--f->stores];
}

static bool overlap(const pending_t *p, const void *at, size_t bytes)
{
    return p->to < (const uint8_t *)at + bytes && (const uint8_t *)at < p->to + p->bytes;
}

/* Keep a lane's accesses to one address in order: at most one of its stores to it is pending. */
static void settle(fiber_t *f, const void *at, size_t bytes)
{
    for (uint32_t i = 0; i < f->stores;) {
        if (overlap(&f->store[i], at, bytes))
            land(f, i);
        else
            i++;
    }
}

static bool is_shared(const fiber_t *f, const uint8_t *at)
{
    const std::vector<uint8_t> &memory = f->its_block->copies.memory;
    return at >= memory.data() && at < memory.data() + memory.size();
}

/* Make one of the lane's stores visible at random. Late ones into its block's memory wait for emulator_stored, or the
 * lane's end. */
static void land_some(fiber_t *f)
{
    const uint32_t i = below(f->stores);
    if (f->state == ENDED || !f->store[i].late || (!is_shared(f, f->store[i].to) && below(LATE) == 0))
        land(f, i);
}

static void make_pending(void *to, const void *from, size_t bytes, kind_t kind)
{
    fiber_t *f = g_now;
    settle(f, to, bytes);
    if (f->stores == MOST_STORES)
        land(f, below(f->stores));
    if (!f->listed)
        g_with_stores.push_back(f);
    f->listed = true;
    pending_t *p = &f->store[f->stores++];
    *p = pending_t{(uint8_t *)to, {0, 0}, (uint32_t)bytes, kind, false, f->warp_meets, f->block_meets};
    memcpy(p->value, from, bytes);
}

/* ---- Fibers ---- */

static void run_again(fiber_t *f)
{
    f->state = RUNS;
    f->index = (uint32_t)g_running.size();
    g_running.push_back(f);
}

static void stop_running(fiber_t *f, state_t state)
{
    f->state = state;
    g_running[f->index] = g_running.back();
    g_running[f->index]->index = f->index;
    g_running.pop_back();
}

static void leave_fiber(void)
{
    if (_setjmp(g_now->at) == 0)
        _longjmp(g_scheduler, 1);
}

static void open_meeting(block *b, meeting_t *m, int of, uint32_t warp)
{
    const uint32_t value = m->value;
    m->waiting = 0;
    const size_t all = b->fibers.size(), first = of == EMULATOR_WARP ? warp * WARP : 0;
    for (size_t i = first; i < (of == EMULATOR_WARP ? std::min(first + WARP, all) : all); i++) {
        fiber_t *f = b->fibers[i];
        if (f->state == (of == EMULATOR_WARP ? MEETS_WARP : MEETS_BLOCK)) {
            f->met = value;
            ++*(of == EMULATOR_WARP ? &f->warp_meets : &f->block_meets);
            run_again(f);
        }
    }
}

static void let_in(fiber_t *f)
{
    if (!f->let_in) {
        f->let_in = true;
        f->its_grid->closed--;
    }
}

static void end_lane(fiber_t *f)
{
    block *b = f->its_block;
    const uint32_t warp = f->lane.thread / WARP;
    let_in(f);
    f->its_grid->left--;
    stop_running(f, ENDED);
    if (b->warps[warp].waiting)
        fail("a lane leaves its warp, which meets");
    b->warps[warp].left = true;
    if (--b->warps[warp].living > 0 && b->warps[warp].waiting == b->warps[warp].living)
        open_meeting(b, &b->warps[warp], EMULATOR_WARP, warp);
    if (--b->all.living > 0 && b->all.waiting == b->all.living)
        open_meeting(b, &b->all, EMULATOR_BLOCK, 0);
    if (b->all.living == 0 && copies_use_memory(&b->copies))
        fail("a block ends, and copies use its memory");
}

static void fiber_main(void)
{
    g_now->its_grid->kernel();
    end_lane(g_now);
    _longjmp(g_scheduler, 1);
}

static char *take_stack(void)
{
    if (g_stacks.empty()) {
        char *all = (char *)mmap(NULL, 64 * STACK_BYTES, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED)
            fail("no memory for stacks");
        for (int i = 0; i < 64; i++)
            g_stacks.push_back(all + i * STACK_BYTES);
    }
    char *stack = g_stacks.back();
    g_stacks.pop_back();
    return stack;
}

/* Begin a fiber. Stacks end in different cache sets, since the most used data of a lane is at its end. */
static void begin_fiber(fiber_t *f)
{
    static ucontext_t begin;
    static size_t colour;
    f->begun = true;
    f->stack = take_stack();
    getcontext(&begin);
    begin.uc_stack.ss_sp = f->stack;
    begin.uc_stack.ss_size = STACK_BYTES - colour++ % COLOURS * 128;
    begin.uc_link = NULL;
    makecontext(&begin, fiber_main, 0);
    setcontext(&begin);
}

static void run_fiber(fiber_t *f)
{
    g_now = f;
    if (_setjmp(g_scheduler) == 0) {
        if (f->begun)
            _longjmp(f->at, 1);
        begin_fiber(f);
    }
    g_now = NULL;
    if (f->state == ENDED) {
        g_stacks.push_back(f->stack);
        f->stack = NULL;
    }
}

/* A point at which other fibers may run. */
static void step(void)
{
    g_steps++;
    if (g_now->stores && below(4) == 0)
        land_some(g_now);
    if (below(4) == 0)
        leave_fiber();
}

/* ---- Kernels ---- */

static bool is_over(grid *g)
{
    if (g->left)
        return false;
    for (auto &b : g->blocks) {
        if (!b->copies.under_way.empty())
            return false;
        for (fiber_t *f : b->fibers) {
            if (f->stores)
                return false;
        }
    }
    return true;
}

static void destroy(grid *g)
{
    for (auto &b : g->blocks) {
        for (fiber_t *f : b->fibers)
            delete f;
    }
}

static void wake_successor(grid *g)
{
    if (!g->behind)
        return;
    g->behind->before = NULL;
    for (auto &b : g->behind->blocks) {
        for (fiber_t *f : b->fibers) {
            if (f->state == WAITS)
                run_again(f);
        }
    }
}

static void pass_time_of_copies(void)
{
    const uint32_t at = below((uint32_t)g_copying.size());
    block *b = g_copying[at];
    if (!b->copies.under_way.empty() && below(b->slowness) == 0)
        copies_pass_time(&b->copies, below);
    if (b->copies.under_way.empty()) {
        b->copying = false;
        g_copying[at] = g_copying.back();
        g_copying.pop_back();
    }
}

/* Make some stores visible, and change which blocks are slow. */
static void pass_time(void)
{
    for (uint32_t i = 0; i < 2 && !g_copying.empty(); i++)
        pass_time_of_copies();
    for (uint32_t i = 0; i < 2 && !g_with_stores.empty(); i++) {
        const uint32_t at = below((uint32_t)g_with_stores.size());
        fiber_t *f = g_with_stores[at];
        if (f->stores)
            land_some(f);
        if (f->stores == 0) {
            f->listed = false;
            g_with_stores[at] = g_with_stores.back();
            g_with_stores.pop_back();
        }
    }
    if (below(2000) == 0) {
        for (auto &g : g_grids) {
            const uint32_t all = below(4) ? 1 : 50;
            for (auto &b : g->blocks)
                b->slowness = all * (below(4) ? 1 : 50);
        }
    }
}

const emulator_lane_t *emulator_lane(void)
{
    return &g_now->lane;
}

void *emulator_shared(void)
{
    return g_now->its_block->copies.memory.data();
}

uint32_t emulator_shared_bytes(void)
{
    return (uint32_t)(g_now->its_block->copies.memory.size() - SHARED_PAD);
}

uint64_t emulator_now_ns(void)
{
    return (g_steps + 1) * STEP_NS;
}

uint32_t emulator_meet(int of, int result, uint32_t x)
{
    fiber_t *f = g_now;
    block *b = f->its_block;
    const uint32_t warp = f->lane.thread / WARP;
    meeting_t *m = of == EMULATOR_WARP ? &b->warps[warp] : &b->all;
    if (m->waiting && m->result != result)
        fail("lanes meet at different places");
    if (of == EMULATOR_WARP && m->left)
        fail("a warp meets without a lane that has left");
    m->value = m->waiting == 0          ? x
               : result == EMULATOR_ANY ? m->value | x
               : result == EMULATOR_SUM ? m->value + x
               : m->value < x           ? m->value
                                        : x;
    m->result = result;
    m->waiting++;
    stop_running(f, of == EMULATOR_WARP ? MEETS_WARP : MEETS_BLOCK);
    if (m->waiting == m->living)
        open_meeting(b, m, of, warp);
    leave_fiber();
    return f->met;
}

void emulator_wait_for_predecessor(void)
{
    fiber_t *f = g_now;
    if (f->its_grid->before) {
        stop_running(f, WAITS);
        leave_fiber();
    }
}

void emulator_let_successor_in(void)
{
    let_in(g_now);
}

void emulator_store(void *to, const void *from, size_t bytes)
{
    step();
    make_pending(to, from, bytes, STORE);
}

void emulator_store_shared(void *to, const void *from, size_t bytes)
{
    emulator_store(to, from, bytes);
    g_now->store[g_now->stores - 1].late = below(2) == 0;
}

void emulator_store_late(void *to, const void *from, size_t bytes)
{
    emulator_store(to, from, bytes);
    g_now->store[g_now->stores - 1].late = below(8) == 0;
}

void emulator_add(uint64_t *to, uint64_t x)
{
    step();
    make_pending(to, &x, sizeof x, ADD);
}

uint64_t emulator_take(uint64_t *to, uint64_t n)
{
    step();
    settle(g_now, to, sizeof *to);
    const uint64_t before = *to;
    *to += n;
    return before;
}

void emulator_or(uint64_t *to, uint64_t x)
{
    step();
    make_pending(to, &x, sizeof x, OR);
}

void emulator_load(const void *from, void *to, size_t bytes)
{
    step();
    settle(g_now, from, bytes);
    memcpy(to, from, bytes);
}

void emulator_fence(void)
{
    const fiber_t *now = g_now;
    for (fiber_t *f : now->its_block->fibers) {
        const bool warp = f->lane.thread / WARP == now->lane.thread / WARP;
        for (uint32_t i = 0; i < f->stores;) {
            const pending_t *p = &f->store[i];
            if (f == now || p->block_meets < now->block_meets || (warp && p->warp_meets < now->warp_meets))
                land(f, i);
            else
                i++;
        }
    }
    copies_fence(&now->its_block->copies, now->lane.thread);
}

/* ---- Bulk copies ---- */

static copies_t *copies_here(void)
{
    step();
    return &g_now->its_block->copies;
}

/* Count the copies of the running block while one is in progress. */
static void count_copies(void)
{
    block *b = g_now->its_block;
    if (!b->copying)
        g_copying.push_back(b);
    b->copying = true;
}

void emulator_barrier_make(uint32_t at, uint32_t arrivals)
{
    fail_if(copies_barrier_make(copies_here(), at, arrivals));
}

void emulator_arrive(uint32_t barrier, uint32_t bytes_to_come)
{
    fail_if(copies_arrive(copies_here(), barrier, bytes_to_come));
}

bool emulator_phase_over(uint32_t barrier, uint32_t parity)
{
    bool over;
    fail_if(copies_over(copies_here(), barrier, parity, &over));
    return over;
}

void emulator_copy_in(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    copies_in(copies_here(), to, from, bytes, barrier);
    count_copies();
}

void emulator_copy_out(void *to, uint32_t from, uint32_t bytes)
{
    copies_out(copies_here(), g_now->lane.thread, to, from, bytes);
    count_copies();
}

void emulator_group(void)
{
    copies_here()->group[g_now->lane.thread]++;
}

void emulator_wait_groups(uint32_t left, bool done)
{
    copies_wait(copies_here(), g_now->lane.thread, left, done);
}

void emulator_stored(void)
{
    copies_t *c = copies_here();
    settle(g_now, c->memory.data(), c->memory.size());
}

void emulator_tell(uint32_t at, uint32_t value)
{
    copies_t *c = copies_here();
    copies_tell(c, g_now->lane.thread);
    memcpy(c->memory.data() + at, &value, sizeof value);
}

uint32_t emulator_told(uint32_t at)
{
    copies_t *c = copies_here();
    uint32_t value;
    memcpy(&value, c->memory.data() + at, sizeof value);
    c->told[g_now->lane.thread] = c->tells;
    return value;
}

/* ---- For streams.cc ---- */

void emulator_seed(uint64_t seed)
{
    g_random = seed * 2 + 1;
}

grid_t *emulator_begin(const launch_t &launch, grid_t *before)
{
    g_grids.emplace_back(new grid);
    grid *g = g_grids.back().get();
    g->left = g->closed = launch.blocks * launch.threads;
    g->before = before;
    g->behind = NULL;
    g->kernel = launch.kernel;
    if (before)
        before->behind = g;
    const uint32_t all = below(4) ? 1 : 50;
    for (uint32_t i = 0; i < launch.blocks; i++) {
        g->blocks.emplace_back(new block);
        block *b = g->blocks.back().get();
        b->copies.memory.resize(launch.shared_bytes + SHARED_PAD);
        b->copies.group.resize(launch.threads);
        b->copies.told.resize(launch.threads);
        b->copies.tells = 0;
        b->copying = false;
        b->slowness = all * (below(4) ? 1 : 50);
        b->all = meeting_t{launch.threads, 0, 0, 0, false};
        for (uint32_t t = 0; t < launch.threads; t++) {
            if (t % WARP == 0)
                b->warps.push_back(meeting_t{std::min(launch.threads - t, (uint32_t)WARP), 0, 0, 0, false});
            fiber_t *f = new fiber_t();
            f->lane = emulator_lane_t{t, launch.threads, i, launch.blocks};
            f->its_grid = g;
            f->its_block = b;
            b->fibers.push_back(f);
            run_again(f);
        }
    }
    return g;
}

bool emulator_lets_in(const grid_t *g)
{
    return g->closed == 0;
}

bool emulator_over(grid_t *g)
{
    if (!is_over(g))
        return false;
    wake_successor(g);
    for (size_t i = 0; i < g_copying.size();) { /* none of them has any left, nor have those below */
        const bool ours = std::any_of(g->blocks.begin(), g->blocks.end(),
                                      [i](const std::unique_ptr<block> &b) { return b.get() == g_copying[i]; });
        if (ours) {
            g_copying[i] = g_copying.back();
            g_copying.pop_back();
        } else {
            i++;
        }
    }
    for (size_t i = 0; i < g_with_stores.size();) {
        if (g_with_stores[i]->its_grid == g) {
            g_with_stores[i] = g_with_stores.back();
            g_with_stores.pop_back();
        } else {
            i++;
        }
    }
    destroy(g);
    g_grids.remove_if([g](const std::unique_ptr<grid> &x) { return x.get() == g; });
    return true;
}

bool emulator_run(uint32_t turns)
{
    for (uint32_t i = 0; i < turns; i++) {
        if (g_running.empty() && g_with_stores.empty() && g_copying.empty())
            return i > 0;
        pass_time();
        if (g_running.empty())
            continue;
        fiber_t *f = g_running[below((uint32_t)g_running.size())];
        g_steps++;
        if (f->its_block->slowness == 1 || below(f->its_block->slowness) == 0)
            run_fiber(f);
    }
    return true;
}
