/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - what a kind of peer memory has; peer_memory.c manages them. A peer may be broken: every field of its offer
 * is checked before use, here or by the kernel. */
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
    net_token_t token;
    uint64_t bytes;
    union {
        net_shared_place_t shared;
        struct {
            net_shared_place_t place;
            char box[NET_BOX_NAME_BYTES];
        } sent;
        struct {
            uint8_t handle[64]; /* cudaIpcMemHandle_t */
            net_shared_place_t guests;
        } ipc;
        struct {
            char box[NET_BOX_NAME_BYTES];
        } vmm;
        uint8_t bytes[200];
    } as;
} net_offer_t;
_Static_assert(sizeof(net_offer_t) == NET_OFFER_BYTES, "an offer's size is part of the protocol");

struct net_range {
    net_memory_kind_t kind;
    int device;
    size_t bytes;
    uint8_t *pointer;
    pid_t pid;
    atomic_uint references; /* the maker's, and one per memory or mapping in it */
};

struct net_memory {
    net_memory_kind_t kind;
    int device;
    uint64_t life; /* 0: unknown, or not CUDA */
    size_t bytes;
    int node;           /* shared: NUMA node of its pages */
    net_range_t *range; /* contains the memory, at `at`; may be NULL */
    void *at;
    void *pointer;
    net_token_t token;
    net_process_t owner;
    pid_t pid;
    uint64_t handle; /* VMM: CUmemGenericAllocationHandle */
    int descriptor;  /* shared: memfd; VMM: exported handle; else -1 */
    net_mark_t mark;
    net_box_t box;
    net_guest_book_t guests;
    uint32_t references; /* the owner's, and one per mapping in this process; under books_lock */
    bool waits;          /* a reap could not free it */
    bool at_once;        /* no kernel uses it: freed with the last reference */
    bool destroyed;      /* no rank of this process may map it any more */
    net_memory_t *next;
};

struct net_mapping {
    int device; /* whose kernels use the mapping */
    uint64_t life;
    size_t bytes;
    net_range_t *range;
    void *at;
    void *pointer;
    net_process_t owner;
    net_memory_kind_t kind;
    uint64_t handle;
    net_guest_t guest;
    pid_t pid;
    net_memory_t *sibling; /* the memory, if this process owns it; else NULL */
};

/* A function that fails undoes its work, except where a free may wait for kernels. */
typedef struct net_memory_ops {
    /* memory->device and ->bytes are set; sets the other fields and offer->as. After a failure, a memory->pointer that
     * is not NULL needs `destroy`. */
    int (*create)(net_memory_t *memory, net_offer_t *offer);
    /* -EAGAIN: the driver forbids it now, or a peer has it mapped. Otherwise the memory is gone. */
    int (*destroy)(net_memory_t *memory);
    /* Of kinds that send. */
    int (*send)(const net_memory_t *memory, const net_offer_t *peer);
    /* Common fields are checked; mapping->device, ->owner and ->bytes are set. */
    int (*open)(net_memory_t *own, const net_offer_t *peer, net_mapping_t *mapping);
    void (*close)(net_mapping_t *mapping);
    /* Lets kernels of `device` use memory of this process. NULL: they always can. */
    int (*share)(net_memory_t *memory, int device);
    /* Of kinds with ranges. */
    int (*reserve)(net_range_t *range);
    void (*unreserve)(net_range_t *range);
} net_memory_ops_t;

#define NET_CPU_MEMORY(kind, name, ...) extern const net_memory_ops_t net_memory_##name;
#define NET_CUDA_MEMORY NET_CPU_MEMORY
#include "transport/memory.def"
#undef NET_CPU_MEMORY
#undef NET_CUDA_MEMORY

#endif
