/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scope_test.c - which context is current during a call of the library and after it (cuda_scope.c), on a fake driver
 * with contexts of two devices: the primary ones, one of cuCtxCreate and a green one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "transport/cuda_driver.h"
#include "transport/transport.h"

struct CUctx_st {
    int device;
    bool green;
};

static struct CUctx_st primaries[2] = {{0, false}, {1, false}}, renewed = {1, false}, foreign = {1, false},
                       green = {1, true};
static struct fake {
    CUcontext current, primary[2];
    CUstreamCaptureMode mode;
    int sets; /* calls of cudaSetDevice */
    cudaError_t set_error;
} fake;

static CUresult context_get(CUcontext *context)
{
    *context = fake.current;
    return CUDA_SUCCESS;
}

static CUresult context_set(CUcontext context)
{
    fake.current = context;
    return CUDA_SUCCESS;
}

static CUresult capture_mode(CUstreamCaptureMode *mode)
{
    const CUstreamCaptureMode before = fake.mode;
    fake.mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static CUresult stream_green(void *stream, void **context)
{
    *context = fake.current && fake.current->green ? fake.current : NULL;
    return !stream && fake.mode == CU_STREAM_CAPTURE_MODE_RELAXED ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
}

static net_driver_t driver = {.context_get = context_get, .context_set = context_set, .capture_mode = capture_mode};

const net_driver_t *net_driver(void)
{
    return &driver;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = fake.current ? fake.current->device : 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    fake.sets++;
    if (fake.set_error == cudaSuccess)
        fake.current = fake.primary[device];
    return fake.set_error;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

static int set_up(void **state)
{
    (void)state;
    fake = (struct fake){.primary = {&primaries[0], &primaries[1]}};
    driver.stream_green = stream_green;
    return 0;
}

/* What is current in a call on device 1. */
static CUcontext in_a_call(CUcontext before)
{
    net_visit_t visit;
    fake.current = before;
    assert_int_equal(net_device_enter(&visit, 1), cudaSuccess);
    assert_int_equal(fake.mode, 0); /* an error of a capture is the program's to see */
    const CUcontext within = fake.current;
    net_device_leave(&visit);
    assert_ptr_equal(fake.current, before);
    return within;
}

static void the_primary_context_stays(void **state)
{
    (void)state;
    in_a_call(&primaries[1]);
    fake.sets = 0;
    assert_ptr_equal(in_a_call(&primaries[1]), &primaries[1]);
    assert_int_equal(fake.sets, 0); /* the usual call */
}

/* In a foreign context the primary one of device 1, which the runtime reports as current, is used. */
static void a_foreign_context_gives_way(void **state)
{
    (void)state;
    assert_ptr_equal(in_a_call(&foreign), &primaries[1]);
    assert_ptr_equal(in_a_call(&foreign), &primaries[1]);
    driver.stream_green = NULL; /* before CUDA 12.5 */
    assert_ptr_equal(in_a_call(&foreign), &primaries[1]);
}

static void so_do_another_device_and_none(void **state)
{
    (void)state;
    assert_ptr_equal(in_a_call(&primaries[0]), &primaries[1]);
    assert_ptr_equal(in_a_call(NULL), &primaries[1]);
}

/* A green context stays current, since a call's stream NULL is the context's. */
static void a_green_context_stays(void **state)
{
    (void)state;
    assert_ptr_equal(in_a_call(&green), &green);
    green.device = 0;
    assert_ptr_equal(in_a_call(&green), &primaries[1]);
    green.device = 1;
}

static void a_reset_may_renew_the_primary_context(void **state)
{
    (void)state;
    in_a_call(&primaries[1]);
    fake.primary[1] = &renewed;
    assert_ptr_equal(in_a_call(&renewed), &renewed);
    assert_ptr_equal(in_a_call(&foreign), &renewed);
}

static void a_device_that_fails_changes_nothing(void **state)
{
    (void)state;
    net_visit_t visit;
    fake.current = &foreign;
    fake.set_error = cudaErrorMemoryAllocation;
    assert_int_equal(net_device_enter(&visit, 1), cudaErrorMemoryAllocation);
    net_device_leave(&visit);
    assert_ptr_equal(fake.current, &foreign);
}

/* Set-up and end restore the context by the same rule, and none of their calls breaks a capture. */
static void a_scope_restores_all(void **state)
{
    (void)state;
    CUcontext before[] = {&primaries[0], &primaries[1], &foreign, &green, NULL};
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        net_scope_t scope;
        fake.current = before[i];
        assert_int_equal(net_scope_enter(&scope, 1), 0);
        assert_ptr_equal(fake.current, &primaries[1]);
        assert_int_equal(fake.mode, CU_STREAM_CAPTURE_MODE_RELAXED);
        net_scope_leave(&scope);
        assert_ptr_equal(fake.current, before[i]);
        assert_int_equal(fake.mode, 0);
    }
}

/* A forwarded call in a capture: the program's own mode is back afterwards. */
static void a_relaxed_capture_mode_is_undone(void **state)
{
    (void)state;
    static const CUstreamCaptureMode modes[] = {0, 1, CU_STREAM_CAPTURE_MODE_RELAXED}; /* global, thread-local */
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        fake.mode = modes[i];
        const int before = net_capture_relax();
        assert_int_equal(fake.mode, CU_STREAM_CAPTURE_MODE_RELAXED);
        net_capture_restore(before);
        assert_int_equal(fake.mode, modes[i]);
    }
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(the_primary_context_stays),
                                       TEST(a_foreign_context_gives_way),
                                       TEST(so_do_another_device_and_none),
                                       TEST(a_green_context_stays),
                                       TEST(a_reset_may_renew_the_primary_context),
                                       TEST(a_device_that_fails_changes_nothing),
                                       TEST(a_scope_restores_all),
                                       TEST(a_relaxed_capture_mode_is_undone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
