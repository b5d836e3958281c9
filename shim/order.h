/*
 * order.h - streams and capture: the order of one communicator's work over
 * several streams, ours and forwarded alike.
 *
 * NCCL lets the work of one communicator run in the order of the calls,
 * whatever their streams, and our kernels share one scratch, so they need the
 * same order. On one stream this costs the question whether the stream is being
 * captured, and outside captures an event after the call.
 *
 * Functions return a cudaError_t. The caller has made the communicator's
 * device current (shim_device_enter), and for those that take a communicator
 * holds its lock. In a build without CUDA they do nothing.
 */
#ifndef SHUNT_SHIM_ORDER_H
#define SHUNT_SHIM_ORDER_H

#include <stdbool.h>

#include "shim/comm.h"

typedef struct shim_capture {
    unsigned long long id; /* 0: the stream is not being captured */
    void *graph;           /* cudaGraph_t that the capture builds */
} shim_capture_t;

/* Make `device` current; *previous gets what shim_device_leave puts back. */
int shim_device_enter(int device, int *previous);
void shim_device_leave(int device, int previous);

/* An error (the legacy stream while another stream of its context is captured; a stream that does not
 * exist; an invalidated capture) is cleared: let the real NCCL meet it and word it. */
int shim_capture_query(void *stream, shim_capture_t *capture);

/* Before a call on `stream`: let it wait for the communicator's last call. */
int shim_order_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* After the call: `stream` has the communicator's last work. pending: the real NCCL has not put its work on
 * the stream yet (non-blocking communicators), so there is nothing to record, and nothing of ours to wait for. */
int shim_order_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture, bool pending);

/* Let `waiter` wait for what is on `stream` now; both captured by the same graph, or neither. */
int shim_order_join(void *waiter, void *stream);

/* The graph of a capture keeps the communicator's state alive as long as it may replay our kernels.
 * Once a capture and communicator, before the first launch. */
int shim_order_retain(shim_comm_t *comm, const shim_capture_t *capture);

#endif
