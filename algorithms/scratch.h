/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h - the memory of a team: its scratch, mappings of the peers', control words; and the pool that keeps them
 * between communicators.
 *
 * The caller exchanges offers between the steps, since one thread can serve several ranks. Functions return 0 or a
 * negative errno, log nothing, and restore the current device. */
#ifndef SHUNT_SCRATCH_H
#define SHUNT_SCRATCH_H

#include "algorithms/algorithm.h"
#include "transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct alg_scratch alg_scratch_t;

/* Hash of the ranks, in order, and their devices. Communicators with equal sets and maps share idle scratches. */
typedef struct alg_set {
    uint64_t hash[2];
} alg_set_t;

/* Reserves an idle scratch of this set, rank and map. Returns its id; 0: none. If all ranks got the same id, all take
 * that scratch; else all leave theirs and create one. */
uint64_t alg_scratch_idle(const alg_set_t *set, uint32_t rank, const alg_map_t *map);
void alg_scratch_leave_idle(uint64_t id, uint32_t rank);
/* Takes scratch `id` from the pool, armed, at epoch 0; complete on return. -ENOENT: the pool lacks it. A rank may
 * launch after all ranks have posted that they took it: only then is it armed everywhere. */
int alg_scratch_take(uint64_t id, uint32_t rank, alg_scratch_t **scratch);

/* Step 1: allocates, arms (alg_map_armed), makes the offer; complete on return. `id`: random, not 0, equal on all
 * ranks. -ENOSYS: try another kind. -ENOMEM, -ENOSPC: the pool has already given up its idle scratches; on CUDA try
 * again after alg_scratch_reap. */
int alg_scratch_create(alg_device_t device, int ordinal, net_memory_kind_t kind, const alg_set_t *set, uint64_t id,
                       uint32_t rank, uint32_t nranks, const alg_map_t *map, alg_scratch_t **scratch,
                       uint8_t offer[NET_OFFER_BYTES]);
/* Step 2: sends descriptors, for kinds that need it. Offers are in rank order. */
int alg_scratch_send(alg_scratch_t *scratch, uint8_t offers[][NET_OFFER_BYTES]);
/* Step 3: maps the peers' memory. */
int alg_scratch_open(alg_scratch_t *scratch, uint8_t offers[][NET_OFFER_BYTES]);
/* The same steps for another piece. A rank opens it when all have armed it (alg_scratch_piece_armed never waits; 0: not
 * yet), and uses it when all have opened it. alg_scratch_piece_end ends the steps; `grown`: no rank failed. If one did,
 * it frees the piece or, while the piece is being armed, keeps it unused. */
int alg_scratch_piece_create(alg_scratch_t *scratch, uint32_t piece, uint8_t offer[NET_OFFER_BYTES]);
int alg_scratch_piece_armed(alg_scratch_t *scratch, uint32_t piece);
int alg_scratch_piece_send(alg_scratch_t *scratch, uint32_t piece, uint8_t offers[][NET_OFFER_BYTES]);
int alg_scratch_piece_open(alg_scratch_t *scratch, uint32_t piece, uint8_t offers[][NET_OFFER_BYTES]);
void alg_scratch_piece_end(alg_scratch_t *scratch, uint32_t piece, bool grown);
/* Frees the memory, keeps the addresses; -ENOSYS: the scratch is one piece. No kernel may use the scratch until all
 * ranks have suspended it and remade all alg_scratch_pieces. */
int alg_scratch_suspend(alg_scratch_t *scratch);
/* Bits: pieces that calls may use, or could before a suspend. */
uint32_t alg_scratch_pieces(const alg_scratch_t *scratch);
void alg_scratch_resumed(alg_scratch_t *scratch);
bool alg_scratch_has(const alg_scratch_t *scratch, uint32_t piece);
const alg_map_t *alg_scratch_map(const alg_scratch_t *scratch);
net_memory_kind_t alg_scratch_kind(const alg_scratch_t *scratch);
bool alg_scratch_peers_alive(const alg_scratch_t *scratch);
size_t alg_scratch_bytes(const alg_scratch_t *scratch);

/* Step 4: stores a word into every peer's mailbox, on CUDA by a kernel. Step 5, after all ranks' step 4: checks and
 * clears this rank's mailboxes; -EIO: a word is missing or wrong. Complete on return. `token`: equal on all ranks. */
int alg_scratch_prove_write(alg_scratch_t *scratch, uint64_t token);
int alg_scratch_prove_read(alg_scratch_t *scratch, uint64_t token);

/* The caller sets the team's `limit`. */
alg_team_t *alg_scratch_team(alg_scratch_t *scratch);
/* The team for calls that need this piece (alg_piece_of); ALG_PIECE_FIRST: with the short halves. */
alg_team_t alg_scratch_team_for(alg_scratch_t *scratch, uint32_t piece);
alg_control_t *alg_scratch_control(alg_scratch_t *scratch);
uint64_t alg_scratch_life(const alg_scratch_t *scratch);

/* Never blocks, but makes CUDA calls, so not in driver callbacks. NULL is allowed. This rank's kernels must have ended;
 * a peer's may run. reusable: all kernels ended well on every rank. Then the pool takes the scratch if it is proven,
 * not suspended, not aborted and without error; else it is freed, on CUDA by alg_scratch_reap. Its memory lives until
 * all ranks of this process that mapped it have released it. */
void alg_scratch_release(alg_scratch_t *scratch, bool reusable);
/* CUDA: frees what was released and not pooled, except what a living peer has mapped. Waits for every kernel of the
 * devices, so none may wait forever. */
void alg_scratch_reap(void);
/* Number of memories that wait for alg_scratch_reap (relays' too), except those kept for peers. */
uint32_t alg_scratch_retired(void);
/* Also memory that a peer still maps. */
bool alg_scratch_any_retired(void);
/* Releases idle scratches, unless reserved. */
void alg_scratch_pool_trim(void);

#ifdef __cplusplus
}
#endif
#endif
