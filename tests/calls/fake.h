/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake.h - a GPU, a real NCCL and an algorithm that only record, so that the order
 * of work over streams, groups and captures can be checked on any machine.
 *
 * Work is numbered. A stream has the set of works that certainly ran before its next work; events pass such sets
 * between streams. A capture builds a graph of nodes: works, and waits for and records of outside events. A launch of
 * it runs as works of its own.
 */
#ifndef TEST_FAKE_H
#define TEST_FAKE_H

#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/comm/comm.h"

enum {
    FAKE_STREAMS = 16,
    FAKE_WORKS = 64,
    FAKE_TAKEN_LIMIT = 1000,
    FAKE_MESSAGES = 4096,
    FAKE_PART_BYTES = 800,
    FAKE_SHORT_ELEMENTS = 100,
    FAKE_BULK_LEAST = 500,
    FAKE_BULK_BLOCKS = 2,
    FAKE_SLOW_BLOCKS = 3
};

typedef enum fake_kind { FAKE_OURS, FAKE_REAL } fake_kind_t;
typedef enum fake_node { FAKE_WORK, FAKE_WAIT, FAKE_RECORD, FAKE_STAMP } fake_node_t;

typedef struct fake_work {
    fake_kind_t kind;
    int device;
    void *stream;
    uint64_t before;            /* works (bits) that have run before it */
    unsigned long long capture; /* captured, so it did not run */
    uint64_t scalar_bits;
    bool relaxed; /* its thread was allowed calls that captures forbid */
} fake_work_t;

typedef struct fake {
    int device; /* current */
    uint32_t works;
    fake_work_t work[FAKE_WORKS];
    uint64_t config_tag;  /* the profiler's tag in the last configuration that the real NCCL got */
    uint32_t devices_set; /* by cudaSetDevice */
    uint32_t cuda_calls;  /* all but queries of device and capture */
    uint32_t queries;     /* queries of a capture */
    uint32_t queried;     /* ... and the devices (bits) that were current then, also of those that failed */
    int last_error;       /* what cudaGetLastError returns once */
    uint32_t searched;    /* nodes that were asked for what they depend on */
    uint32_t wrong_waits; /* an event of a capture was waited for outside of it, or the reverse */
    uint32_t graph_references;
    uint32_t ms;                                /* records of events */
    uint32_t events, streams_made;              /* made by the code under test, and not destroyed */
    uint64_t life;                              /* of all devices; 0: the driver does not tell */
    uint32_t reaps;                             /* of scratch that has ended */
    uint32_t stale;                             /* uses of an event or a stream that a reset took */
    int launch_error;                           /* what the next launches return ... */
    int wait_error, record_error, retain_error; /* ... and of the calls around them */
    int late_wait_error;                        /* of waits, from the next launch on */
    int search_error;                           /* of the question what a node depends on */
    int remove_error;                           /* of taking an edge away */
    bool running;                               /* recorded work has not ended */
    int pin_error;                              /* of pinning memory */
    uint32_t pinned;
    int ends_after;                        /* so many queries, if not 0 */
    uint32_t launches_left;                /* if not 0: launches until they fail */
    bool bulk_messages;                    /* those of more than FAKE_BULK_LEAST elements go by bulk copies */
    bool lists;                            /* short calls without a root can be parts, too */
    bool cut;                              /* the scratch comes in pieces, ... */
    bool grown, stays_short;               /* ... which are there; and never come */
    uint32_t pieces, asks;                 /* bits: for which calls were launched; waits for one */
    bool launches_part;                    /* a launch that fails puts some of its work on the stream */
    void (*while_settling)(shim_comm_t *); /* what happens while a call waits for the set-up */
    ncclResult_t real_state;               /* of every communicator: the answer of ncclCommGetAsyncError */
    uint32_t polls;                        /* of it; each one moves ncclInProgress on, the third to success */
    ncclResult_t forward_result;
    uint32_t multiprocessors; /* of a GPU; 0: not known */
    uint32_t launches;
    uint64_t apart;                  /* of them (bits): without dependent launch */
    alg_call_t launched[FAKE_WORKS]; /* by Shunt; their lists of messages and of parts are copies */
    alg_message_t message[FAKE_MESSAGES];
    alg_part_t part[FAKE_MESSAGES];
    uint32_t messages, parts;
    uint32_t real_calls;
    const char *real_call[FAKE_WORKS]; /* names of the real NCCL's functions that were called, except groups' */
    unsigned real_depth;
    ncclResult_t real_error; /* of the real NCCL's group */
} fake_t;

extern fake_t fake;

/* Add work to a stream. Called by fake_rooms.c. */
void fake_work(fake_kind_t kind, cudaStream_t stream, uint64_t scalar_bits);

/* Make the stream's next work run after all work of the other one. */
void fake_join(cudaStream_t stream, cudaStream_t other);

/* Reset the devices (cudaDeviceReset): events and streams of the code under test are gone. */
void fake_device_reset(void);
/* Reset all state except communicators. */
void fake_reset(void);
/* Stream number 1 .. FAKE_STREAMS-1. */
cudaStream_t fake_stream(int number);
void fake_stream_destroy(cudaStream_t stream);
/* Make a new stream with a destroyed stream's handle. */
void fake_stream_again(cudaStream_t stream);
/* Set the capture of a stream. id 0: none; ~0: the query fails. */
void fake_stream_capture(cudaStream_t stream, unsigned long long id);
/* Works that ran before the stream's next work. */
uint64_t fake_known(cudaStream_t stream);
/* Nodes of the graph of a capture. */
uint32_t fake_nodes(unsigned long long capture, fake_node_t kind);
/* Edges to its works. */
uint32_t fake_edges(unsigned long long capture);
/* Make the next node of a captured stream depend on this captured work alone. */
void fake_stream_rewind(cudaStream_t stream, uint32_t work);
/* Works right before its record nodes, works before its waits, and works after all its waits. */
uint64_t fake_recorded(unsigned long long capture);
uint64_t fake_before_waits(unsigned long long capture);
uint64_t fake_after_waits(unsigned long long capture);
/* Launch a capture's graph: its works run once more. */
void fake_graph_launch(unsigned long long capture, cudaStream_t stream);
/* Destroy the graphs of all captures, whose callbacks then run. */
void fake_graphs_destroy(void);

/* An attached communicator on a device. fake_comm_end removes and frees it. */
shim_comm_t *fake_comm(int device, bool blocking);
void fake_comm_end(shim_comm_t *comm);

#endif
