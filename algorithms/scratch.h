/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch.h - the memory of a team: own scratch, mappings of the peers', control words, and the pool that keeps them
 * between communicators.
 *
 * Built in steps, so that one thread can do each step for several ranks before the next. Between two steps the caller
 * exchanges the offers (transport's stages). Functions return 0 or a negative errno, log nothing, and leave the current
 * device as they found it.
 */
#ifndef SHUNT_SCRATCH_H
#define SHUNT_SCRATCH_H

#include "algorithms/algorithm.h"
#include "transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct alg_scratch alg_scratch_t;

/* The ranks that share a scratch, in rank order, with their devices, from the identities that all ranks posted. Equal
 * sets with equal maps may reuse each other's scratch. */
typedef struct alg_set {
    uint64_t hash[2];
} alg_set_t;

/* Pool: the id (never 0) of an idle scratch of this set, rank and map, or 0. Every rank posts its answer; only if all
 * hold the same id do they take it, else all create and leave it idle. Until taken or left it stays, and is not offered
 * again. Of the others up to 4 are kept for each device. */
uint64_t alg_scratch_idle(const alg_set_t *set, uint32_t rank, const alg_map_t *map);
void alg_scratch_leave_idle(uint64_t id, uint32_t rank);
/* Take it out of the pool, re-armed and with its epochs at 0; complete on return. -ENOENT: it is gone. No rank may
 * launch before all have posted that they took it: only then is it armed everywhere. */
int alg_scratch_take(uint64_t id, uint32_t rank, alg_scratch_t **scratch);

/* Step 1: allocate, arm (alg_map_armed), make the offer; complete on return. `id` is the same on all ranks, not 0, and
 * unique (make it random). -ENOSYS: no such device or memory here; try another kind. */
int alg_scratch_create(alg_device_t device, int ordinal, net_memory_kind_t kind, const alg_set_t *set, uint64_t id,
                       uint32_t rank, uint32_t nranks, const alg_map_t *map, alg_scratch_t **scratch,
                       uint8_t offer[NET_OFFER_BYTES]);
/* Step 2 (VMM only, else nothing): send descriptors to the peers. offers in rank order. */
int alg_scratch_send(alg_scratch_t *scratch, uint8_t offers[][NET_OFFER_BYTES]);
/* Step 3: map the peers' memory. */
int alg_scratch_open(alg_scratch_t *scratch, uint8_t offers[][NET_OFFER_BYTES]);
/* Another piece (alg_map_t), in steps as above. It is armed when alg_scratch_piece_armed, which never waits, returns 1
 * (0: not yet). A rank opens it when all are armed, and says so; it may use it when all have opened it. After a failure
 * of any rank it is given back, and the scratch goes on without it. */
int alg_scratch_piece_create(alg_scratch_t *scratch, uint32_t piece, uint8_t offer[NET_OFFER_BYTES]);
int alg_scratch_piece_armed(alg_scratch_t *scratch, uint32_t piece);
int alg_scratch_piece_send(alg_scratch_t *scratch, uint32_t piece, uint8_t offers[][NET_OFFER_BYTES]);
int alg_scratch_piece_open(alg_scratch_t *scratch, uint32_t piece, uint8_t offers[][NET_OFFER_BYTES]);
void alg_scratch_piece_end(alg_scratch_t *scratch, uint32_t piece, bool grown);
/* Give all memory back, the peers' mappings too, but keep the addresses; -ENOSYS for a scratch that came whole. No
 * kernel of this rank may use it, or begin, until all ranks have suspended it and then made all of its pieces
 * (alg_scratch_pieces) again in the steps above; then it is as new. */
int alg_scratch_suspend(alg_scratch_t *scratch);
/* Bits: pieces that calls may use, or could before it was suspended. */
uint32_t alg_scratch_pieces(const alg_scratch_t *scratch);
void alg_scratch_resumed(alg_scratch_t *scratch);
bool alg_scratch_has(const alg_scratch_t *scratch, uint32_t piece);
const alg_map_t *alg_scratch_map(const alg_scratch_t *scratch);
/* False once a peer's process is gone. */
bool alg_scratch_peers_alive(const alg_scratch_t *scratch);
size_t alg_scratch_bytes(const alg_scratch_t *scratch);

/* Step 4: store a word of this rank into every peer's mailbox, from a kernel (CUDA); complete on return. Step 5, when
 * all ranks have done step 4: check and clear the own mailboxes; -EIO if a word is missing or wrong. `token` is the
 * same on all ranks; each pair's word is made from it. */
int alg_scratch_prove_write(alg_scratch_t *scratch, uint64_t token);
int alg_scratch_prove_read(alg_scratch_t *scratch, uint64_t token);

/* The caller sets its limit. */
alg_team_t *alg_scratch_team(alg_scratch_t *scratch);
/* A copy for a call that needs this piece (alg_piece_of): for ALG_PIECE_FIRST the halves are the short ones. */
alg_team_t alg_scratch_team_for(alg_scratch_t *scratch, uint32_t piece);
/* As the host addresses them. */
alg_control_t *alg_scratch_control(alg_scratch_t *scratch);
/* The device's life (net_device_life) since it was made; on the host device 0. */
uint64_t alg_scratch_life(const alg_scratch_t *scratch);

/* NULL is allowed. reusable: all its kernels ended well on every rank, so it may go to the pool (if the proof was good
 * and abort and status are still 0); else it is freed: on the host at once, on CUDA by alg_scratch_reap. No kernel of
 * this rank may still use it; one of a peer may. Never blocks. Ranks of one process may release in any order: memory
 * lives until every one of them that has mapped it has released it. Makes CUDA calls: never call it from a driver
 * callback. */
void alg_scratch_release(alg_scratch_t *scratch, bool reusable);
/* CUDA: free what was released and not kept. Waits for every kernel of the devices: call it when none runs that may
 * wait for ever. Memory that a living peer has mapped stays for a later time. */
void alg_scratch_reap(void);
/* Number of scratches, and of relays' memories, that wait for alg_scratch_reap; not those that the last reap left
 * because a peer has them mapped. */
uint32_t alg_scratch_retired(void);
/* Free every idle scratch of the pool that is not offered (in tests, and when an allocation fails). */
void alg_scratch_pool_trim(void);

#ifdef __cplusplus
}
#endif
#endif
