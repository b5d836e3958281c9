/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - what the kinds of peer memory have in common. Private to this folder.
 *
 * peer_memory.c keeps the books (tokens, other ranks of this process, when to
 * free); a kind allocates, exports and imports. An offer is plain data that a
 * possibly broken process wrote, so every field is checked before use, here or by
 * the kernel.
 */
#ifndef SHUNT_TRANSPORT_MEMORY_H
#define SHUNT_TRANSPORT_MEMORY_H

#include <stdatomic.h>
#include <sys/types.h>

#include "transport/descriptor_box.h"
#include "transport/guests.h"
#include "transport/transport.h"

#define NET_OFFER_MAGIC UINT32_C(0x53484f31)

typedef struct net_token {
    uint64_t word[2];
} net_token_t;

typedef struct net_offer {
    uint32_t magic;
    uint32_t kind;
    net_process_t owner;
    net_token_t token; /* random; names this memory */
    uint64_t bytes;
    union {
        net_host_place_t host;
        struct {
            net_host_place_t place;
            char box[NET_BOX_NAME_BYTES]; /* as vmm.box */
        } sent;
        struct {
            uint8_t handle[64]; /* cudaIpcMemHandle_t */
            net_host_place_t guests;
        } ipc;
        struct {
            char box[NET_BOX_NAME_BYTES]; /* path at which the owner receives descriptors; NUL-terminated */
        } vmm;
        uint8_t bytes[200];
    } as;
} net_offer_t;
_Static_assert(sizeof(net_offer_t) == NET_OFFER_BYTES, "an offer's size is part of the protocol");

/* Addresses for memory that comes piece by piece. */
struct net_range {
    net_memory_kind_t kind;
    int device;
    size_t bytes;
    uint8_t *pointer;
    pid_t pid;              /* identity of the process that reserved it */
    atomic_uint references; /* the maker's, and one for each memory and mapping within */
};

struct net_memory {
    net_memory_kind_t kind;
    int device;
    uint64_t life;      /* of the device; 0: not of CUDA, or not known */
    size_t bytes;       /* usable bytes */
    int node;           /* host: the NUMA node for its pages */
    net_range_t *range; /* that it lies in, at `at`; NULL: it has addresses of its own */
    void *at;
    void *pointer;
    net_token_t token;
    net_process_t owner;
    pid_t pid;               /* the owner's, as getpid says */
    uint64_t handle;         /* VMM: CUmemGenericAllocationHandle */
    int descriptor;          /* host: memfd; VMM: exported handle; else -1 */
    net_mark_t mark;         /* of the descriptor */
    net_box_t box;           /* of the kinds that send */
    net_guest_book_t guests; /* IPC */
    uint32_t references;     /* the owner's, and one a mapping of this process; under the books' lock */
    bool waits;              /* a reap could not free it */
    bool at_once;            /* to be freed with its last reference: no kernel uses it */
    bool destroyed;          /* the owner has destroyed it; no rank of this process may map it any more */
    net_memory_t *next;      /* next memory in the books */
};

struct net_mapping {
    int device;    /* device whose kernels use it */
    uint64_t life; /* of that device, likewise */
    size_t bytes;
    net_range_t *range; /* as for own memory */
    void *at;
    void *pointer;
    net_process_t owner;
    net_memory_kind_t kind;
    uint64_t handle;       /* VMM */
    net_guest_t guest;     /* IPC */
    pid_t pid;             /* identity of the process that mapped it */
    net_memory_t *sibling; /* the memory itself if its owner is this process, else NULL */
};

/* One kind. Each function undoes what it did before it fails; but for memory whose free may wait for kernels. */
typedef struct net_memory_ops {
    /* memory->device and ->bytes are set; fill in the rest and offer->as. After a failure memory->pointer says if there
     * is something for `destroy`. */
    int (*create)(net_memory_t *memory, net_offer_t *offer);
    /* -EAGAIN: cannot be freed now, because the driver does not allow it or a peer has it mapped. Else it is gone. */
    int (*destroy)(net_memory_t *memory);
    /* NULL if nothing has to be sent. */
    int (*send)(const net_memory_t *memory, const net_offer_t *peer);
    /* The offer's common fields are checked; mapping->device, ->owner and ->bytes are set. */
    int (*open)(net_memory_t *own, const net_offer_t *peer, net_mapping_t *mapping);
    void (*close)(net_mapping_t *mapping);
    /* Let kernels of `device` use memory of this process. NULL if they always can. */
    int (*share)(net_memory_t *memory, int device);
    /* Addresses without memory. NULL: not for this kind, whose memory comes whole. */
    int (*reserve)(net_range_t *range);
    void (*unreserve)(net_range_t *range);
    bool driver; /* calls the driver, which a forked child must not do */
} net_memory_ops_t;

extern const net_memory_ops_t net_memory_host;
extern const net_memory_ops_t net_memory_host_sent;
extern const net_memory_ops_t net_memory_cuda_ipc; /* only with CUDA */
extern const net_memory_ops_t net_memory_cuda_vmm; /* only with CUDA */
extern const net_memory_ops_t net_memory_pinned;   /* only with CUDA; sent or not */

#endif
