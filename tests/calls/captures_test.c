/* SPDX-License-Identifier: Apache-2.0 */
/*
 * captures_test.c - the cost of captured calls, in steps and in memory, with thousands of calls or of graphs.
 *
 * capture.c is compiled with -fsanitize-coverage=trace-pc, so each basic block that it runs is a step. The graph of the
 * fake driver below is one stream's chain.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka wants the three above first */
#include <cmocka.h>
#include <cuda_runtime_api.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

#include "shim/comm/capture.h"

enum { GRAPHS = 10000, CALLS = 16000, NODES = 1 << 16, SOME = 100 };

/* ---- Steps and memory of capture.c -------------------------------------------------------- */

static atomic_ullong steps; /* the driver's callback takes some, too */
static atomic_llong bytes;

void __sanitizer_cov_trace_pc(void);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void __real_free(void *memory);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void __wrap_free(void *memory);

void __sanitizer_cov_trace_pc(void)
{
    atomic_fetch_add_explicit(&steps, 1, memory_order_relaxed);
}

static void *counted(void *memory)
{
    atomic_fetch_add(&bytes, (long long)malloc_usable_size(memory));
    return memory;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *memory, size_t size)
{
    atomic_fetch_sub(&bytes, (long long)malloc_usable_size(memory));
    return counted(__real_realloc(memory, size));
}

void __wrap_free(void *memory)
{
    atomic_fetch_sub(&bytes, (long long)malloc_usable_size(memory));
    __real_free(memory);
}

/* ---- The driver ------------------------------------------------------------------------------ */

struct CUgraphNode_st {
    cudaGraphNode_t before;
};

struct CUuserObject_st {
    cudaHostFn_t destroy;
    void *pointer;
};

static struct driver {
    unsigned long long id;            /* of the capture under way */
    cudaGraphNode_t front;            /* NULL: none yet */
    uint32_t nodes, calls, questions; /* questions: what a node depends on */
    struct CUgraphNode_st node[NODES];
    atomic_uint held, destroyed;
    struct CUuserObject_st object[GRAPHS + SOME];
} driver;

static cudaGraphNode_t node_add(void)
{
    assert_true(driver.nodes < NODES);
    cudaGraphNode_t node = &driver.node[driver.nodes++];
    node->before = driver.front;
    return node;
}

static void kernel(void)
{
    driver.front = node_add();
}

/* Destroy the graphs of the captures up to this number. */
static void graphs_destroy(uint32_t number)
{
    while (atomic_load(&driver.destroyed) < number) {
        const struct CUuserObject_st *object = &driver.object[atomic_fetch_add(&driver.destroyed, 1)];
        object->destroy(object->pointer);
    }
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

int net_stream_capture(void *stream, unsigned long long *id)
{
    (void)stream, (void)id;
    return cudaErrorInvalidValue; /* not asked here */
}

int net_stream_id(void *stream, unsigned long long *id)
{
    (void)stream;
    *id = 1;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **front, const cudaGraphEdgeData **edges,
                                     size_t *count)
{
    (void)stream, (void)id, (void)edges;
    driver.calls++;
    *status = cudaStreamCaptureStatusActive;
    if (graph != NULL)
        *graph = (cudaGraph_t)&driver;
    if (front == NULL)
        return cudaSuccess;
    *front = &driver.front;
    *count = driver.front != NULL;
    return cudaSuccess;
}

/* Of the first call, which waits; calls of one chain need no further edge. */
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *list,
                                                const cudaGraphEdgeData *edges, size_t count, unsigned flags)
{
    (void)stream, (void)edges, (void)count, (void)flags;
    driver.calls++;
    if (driver.front != NULL)
        return cudaErrorInvalidValue;
    driver.front = list[0];
    return cudaSuccess;
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *list, cudaGraphEdgeData *edges,
                                         size_t *count)
{
    (void)edges;
    driver.questions++;
    *count = node->before != NULL;
    if (node->before != NULL)
        list[0] = node->before;
    return cudaSuccess;
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                     const cudaGraphEdgeData *edges, size_t count)
{
    (void)graph, (void)edges, (void)count;
    driver.calls++;
    to[0]->before = from[0];
    return cudaSuccess;
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                        const cudaGraphEdgeData *edges, size_t count)
{
    (void)graph, (void)edges, (void)count;
    driver.calls++;
    const bool there = to[0]->before == from[0];
    to[0]->before = NULL;
    return there ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                        size_t count, cudaEvent_t event)
{
    (void)graph, (void)count, (void)event;
    driver.calls++;
    *node = node_add();
    (*node)->before = after[0];
    return cudaSuccess;
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                      size_t count, cudaEvent_t event)
{
    (void)graph, (void)after, (void)count, (void)event;
    driver.calls++;
    *node = node_add();
    return cudaSuccess;
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *pointer, cudaHostFn_t destroy, unsigned references,
                                 unsigned flags)
{
    (void)references, (void)flags;
    driver.calls++;
    *object = &driver.object[atomic_load(&driver.held)];
    **object = (struct CUuserObject_st){destroy, pointer};
    return cudaSuccess;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count)
{
    (void)count;
    object->destroy(object->pointer);
    return cudaSuccess;
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags)
{
    (void)graph, (void)object, (void)count, (void)flags;
    driver.calls++;
    atomic_fetch_add(&driver.held, 1);
    return cudaSuccess;
}

/* ---- The communicator -------------------------------------------------------------------------- */

static shim_comm_t comm;

void shim_comm_retain(shim_comm_t *of)
{
    atomic_fetch_add(&of->references, 1);
}

void shim_comm_release(shim_comm_t *of)
{
    atomic_fetch_sub(&of->references, 1);
}

static int begin(void **state)
{
    (void)state;
    driver = (struct driver){.id = 0};
    comm = (shim_comm_t){.references = 1, .config.graph_mixing = true};
    atomic_store(&bytes, 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    graphs_destroy(atomic_load(&driver.held));
    shim_captured_forget(&comm);
    return atomic_load(&bytes) == 0 && atomic_load(&comm.references) == 1 ? 0 : -1;
}

static void capture_begin(void)
{
    driver.id++;
    driver.front = NULL;
    driver.nodes = 0;
}

/* What a call took. */
typedef struct cost {
    uint64_t steps, calls;
} cost_t;

static cost_t call(void)
{
    const shim_capture_t capture = {.id = driver.id, .stream_id = 1};
    const uint64_t steps_before = atomic_load(&steps), calls_before = driver.calls + driver.questions;
    assert_int_equal(shim_captured_enter(&comm, NULL, &capture), 0);
    assert_non_null(shim_captured_ahead(&comm, &capture));
    kernel();
    assert_int_equal(shim_captured_leave(&comm, NULL, &capture), 0);
    return (cost_t){atomic_load(&steps) - steps_before, driver.calls + driver.questions - calls_before};
}

static int by_steps(const void *a, const void *b)
{
    const cost_t *x = a, *y = b;
    return (x->steps > y->steps) - (x->steps < y->steps);
}

/* Sorts them. */
static cost_t median(cost_t *costs, uint32_t count)
{
    qsort(costs, count, sizeof *costs, by_steps);
    return costs[count / 2];
}

static uint64_t steps_of(const cost_t *costs, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += costs[i].steps;
    return sum;
}

/* ---- Tests --------------------------------------------------------------------------------------- */

static void the_last_of_many_graphs_is_as_cheap_as_the_first(void **state)
{
    (void)state;
    static cost_t cost[GRAPHS];
    for (uint32_t i = 0; i < GRAPHS; i++) {
        capture_begin();
        cost[i] = call();
    }
    const uint64_t all = steps_of(cost, GRAPHS);
    const cost_t first = median(cost, SOME), last = median(cost + GRAPHS - SOME, SOME);
    print_message("# a graph with one call: %llu steps and %llu calls of the driver; the last of %d: %llu and %llu\n",
                  (unsigned long long)first.steps, (unsigned long long)first.calls, GRAPHS,
                  (unsigned long long)last.steps, (unsigned long long)last.calls);
    print_message("# bytes a graph: %lld\n", atomic_load(&bytes) / GRAPHS);
    assert_true(first.steps > 0);
    assert_true(last.steps * 2 <= first.steps * 3);
    assert_int_equal(last.calls, first.calls);
    assert_true(all <= first.steps * 3 / 2 * GRAPHS); /* with those that make room */
    assert_true(atomic_load(&bytes) <= 256ll * GRAPHS);
    assert_int_equal(atomic_load(&comm.order.graphs), GRAPHS);
}

/* Two calls are in order even with thousands of kernels between them: a search that gives up adds an edge, which this
 * driver refuses. */
static void thousands_of_kernels_may_stand_between_two_calls(void **state)
{
    (void)state;
    capture_begin();
    call();
    for (int between = 100; between <= 3000; between += 1450) {
        for (int i = 0; i < between; i++)
            kernel();
        driver.questions = 0;
        call();
        assert_int_equal(driver.questions, between); /* one a kernel */
    }
}

/* The search for an earlier call that is far away or on another path ends after a bounded number of steps. */
static void a_search_has_an_end(void **state)
{
    (void)state;
    const shim_capture_t capture = {.id = 1, .stream_id = 1};
    capture_begin();
    call();
    for (int i = 0; i < CALLS; i++)
        kernel();
    driver.questions = 0;
    assert_int_equal(shim_captured_enter(&comm, NULL, &capture), cudaErrorInvalidValue); /* of the edge */
    assert_true(driver.questions > 3000 && driver.questions < CALLS / 3);
}

static void the_last_of_many_calls_is_as_cheap_as_the_first(void **state)
{
    (void)state;
    static cost_t cost[CALLS];
    capture_begin();
    for (uint32_t i = 0; i < CALLS; i++) {
        cost[i] = call();
        kernel();
    }
    const cost_t first = median(cost + 1, SOME), last = median(cost + CALLS - SOME, SOME);
    print_message("# a call in a graph: %llu steps and %llu calls of the driver; the last of %d: %llu and %llu\n",
                  (unsigned long long)first.steps, (unsigned long long)first.calls, CALLS,
                  (unsigned long long)last.steps, (unsigned long long)last.calls);
    print_message("# bytes: %lld\n", atomic_load(&bytes));
    assert_true(first.steps > 0);
    assert_int_equal(last.steps, first.steps);
    assert_int_equal(last.calls, first.calls);
    assert_true(atomic_load(&bytes) <= 512);
}

/* The records of destroyed graphs are freed when the next call is captured; only the table remains. */
static void records_of_graphs_that_are_gone_are_freed(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < GRAPHS; i++) {
        capture_begin();
        call();
    }
    const long long most = atomic_load(&bytes);
    graphs_destroy(GRAPHS);
    assert_int_equal(atomic_load(&bytes), most); /* the driver's callback frees nothing */
    assert_int_equal(atomic_load(&comm.order.graphs), 0);
    capture_begin();
    call();
    assert_true(atomic_load(&bytes) <= 32ll * GRAPHS);
}

static void *destroy_as_they_come(void *unused)
{
    while (atomic_load(&driver.destroyed) < GRAPHS)
        graphs_destroy(atomic_load(&driver.held));
    return unused;
}

/* A graph's callback may run at any time: here during its capture's call, or a later one. */
static void graphs_go_while_others_are_captured(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, destroy_as_they_come, NULL), 0);
    for (uint32_t i = 0; i < GRAPHS; i++) {
        const shim_capture_t capture = {.id = i + 1, .stream_id = 1};
        capture_begin();
        assert_int_equal(shim_captured_enter(&comm, NULL, &capture), 0);
        kernel();
        assert_int_equal(shim_captured_leave(&comm, NULL, &capture), 0);
    }
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&comm.order.graphs), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_last_of_many_graphs_is_as_cheap_as_the_first, begin, end),
        cmocka_unit_test_setup_teardown(the_last_of_many_calls_is_as_cheap_as_the_first, begin, end),
        cmocka_unit_test_setup_teardown(thousands_of_kernels_may_stand_between_two_calls, begin, end),
        cmocka_unit_test_setup_teardown(a_search_has_an_end, begin, end),
        cmocka_unit_test_setup_teardown(records_of_graphs_that_are_gone_are_freed, begin, end),
        cmocka_unit_test_setup_teardown(graphs_go_while_others_are_captured, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
