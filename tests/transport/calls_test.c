/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls_test.c - the driver calls of each collective (cuda_calls.c), on a fake driver: the attributes of a launch, and
 * that each kernel's handle is requested once and belongs to that kernel, whatever threads launch and however many
 * kernels there are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants these above first */
#include <cmocka.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <string.h>

#include "transport/cuda_driver.h"
#include "transport/transport.h"

enum { KERNELS = 5000, THREADS = 8 }; /* more kernels than the table has places */

static char kernel[KERNELS], handle[KERNELS];
static atomic_uint asked, cleared;
static cudaError_t refused;

cudaError_t cudaGetKernel(cudaKernel_t *found, const void *of)
{
    atomic_fetch_add(&asked, 1);
    *found = (cudaKernel_t)(void *)&handle[(const char *)of - kernel];
    return refused;
}

cudaError_t cudaGetLastError(void)
{
    atomic_fetch_add(&cleared, 1);
    return cudaSuccess;
}

static struct {
    CUlaunchConfig config;
    CUlaunchAttribute attribute[2];
    CUfunction function;
    int argument[2];
} launched;

static CUresult launch(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra)
{
    assert_null(extra);
    launched.config = *config;
    memcpy(launched.attribute, config->attrs, config->numAttrs * sizeof(*config->attrs));
    launched.function = function;
    for (int i = 0; i < 2; i++)
        launched.argument[i] = *(int *)arguments[i];
    return CUDA_SUCCESS;
}

static CUstreamCaptureStatus status;

static CUresult stream_capture(CUstream stream, CUstreamCaptureStatus *said, cuuint64_t *id)
{
    (void)stream;
    *said = status;
    *id = 9;
    return CUDA_SUCCESS;
}

static net_driver_t driver = {.launch = launch, .stream_capture = stream_capture};

const net_driver_t *net_driver(void)
{
    return &driver;
}

static const int arguments[] = {3, 5};
static const void *const pointers[] = {&arguments[0], &arguments[1]};

static void a_launch_has_what_was_asked_for(void **state)
{
    (void)state;
    net_launch_t one = {.kernel = &kernel[1], .blocks = 7, .threads = 96, .shared_bytes = 2048, .stream = &one};
    assert_int_equal(net_kernel_launch(&one, pointers), cudaSuccess);
    assert_ptr_equal(launched.function, &handle[1]);
    assert_ptr_equal(launched.config.hStream, &one);
    assert_int_equal(launched.config.gridDimX, 7);
    assert_int_equal(launched.config.blockDimX, 96);
    assert_int_equal(launched.config.gridDimY * launched.config.gridDimZ, 1);
    assert_int_equal(launched.config.blockDimY * launched.config.blockDimZ, 1);
    assert_int_equal(launched.config.sharedMemBytes, 2048);
    assert_int_equal(launched.config.numAttrs, 0);
    assert_memory_equal(launched.argument, arguments, sizeof arguments);
    one.dependent = true;
    one.priority = -5;
    assert_int_equal(net_kernel_launch(&one, pointers), cudaSuccess);
    assert_int_equal(launched.config.numAttrs, 2);
    assert_int_equal(launched.attribute[0].id, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
    assert_int_equal(launched.attribute[0].value.programmaticStreamSerializationAllowed, 1);
    assert_int_equal(launched.attribute[1].id, CU_LAUNCH_ATTRIBUTE_PRIORITY);
    assert_int_equal(launched.attribute[1].value.priority, -5);
    assert_int_equal(asked, 1);
}

static void a_kernel_that_is_not_found_is_asked_for_again(void **state)
{
    (void)state;
    const net_launch_t one = {.kernel = &kernel[2], .blocks = 1, .threads = 32};
    const unsigned before = asked;
    refused = cudaErrorInvalidValue;
    assert_int_equal(net_kernel_launch(&one, pointers), cudaErrorInvalidValue);
    assert_int_equal(cleared, 1);
    refused = cudaSuccess;
    for (int i = 0; i < 2; i++)
        assert_int_equal(net_kernel_launch(&one, pointers), cudaSuccess);
    assert_int_equal(asked, before + 2);
}

static void a_stream_says_which_capture_it_is_in(void **state)
{
    (void)state;
    unsigned long long id = 1;
    status = CU_STREAM_CAPTURE_STATUS_NONE;
    assert_int_equal(net_stream_capture(NULL, &id), cudaSuccess);
    assert_int_equal(id, 0);
    status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    assert_int_equal(net_stream_capture(NULL, &id), cudaSuccess);
    assert_int_equal(id, 9);
    status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    assert_int_equal(net_stream_capture(NULL, &id), cudaErrorStreamCaptureInvalidated);
}

/* Each thread's own; the driver above is one thread's. */
static _Thread_local CUfunction function_here;

static CUresult launch_here(const CUlaunchConfig *config, CUfunction function, void **unused, void **extra)
{
    (void)config, (void)unused, (void)extra;
    function_here = function;
    return CUDA_SUCCESS;
}

static atomic_uint arrived;

/* All begin with the same kernels at once. The last ones find no place. */
static void *launch_all(void *wrong)
{
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < THREADS)
        ;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < KERNELS; i++) {
            const net_launch_t one = {.kernel = &kernel[i], .blocks = 1, .threads = 32};
            const bool good = net_kernel_launch(&one, pointers) == cudaSuccess && function_here == (void *)&handle[i];
            atomic_fetch_add((atomic_uint *)wrong, !good);
        }
    return NULL;
}

static void each_kernel_has_its_own_handle(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    static atomic_uint wrong;
    driver.launch = launch_here;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, launch_all, &wrong), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(wrong, 0);
    const unsigned before = asked;
    for (int i = 0; i < KERNELS; i++) {
        const net_launch_t one = {.kernel = &kernel[i], .blocks = 1, .threads = 32};
        assert_int_equal(net_kernel_launch(&one, pointers), cudaSuccess);
    }
    assert_int_equal(asked - before, KERNELS - 4096); /* those without a place */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_launch_has_what_was_asked_for),
                                       cmocka_unit_test(a_kernel_that_is_not_found_is_asked_for_again),
                                       cmocka_unit_test(a_stream_says_which_capture_it_is_in),
                                       cmocka_unit_test(each_kernel_has_its_own_handle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
