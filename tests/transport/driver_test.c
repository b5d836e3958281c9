/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver_test.c - the lookup of driver functions as with a toolkit before 12.5 (cuda_driver.c), on a driver that is
 * older than the toolkit and refuses functions of the toolkit's version.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <cuda_runtime_api.h>
#include <string.h>

#include "transport/cuda_driver.h"

static char library; /* its address stands for libcuda */

static CUresult context_get(CUcontext *context)
{
    *context = NULL;
    return CUDA_SUCCESS;
}

static CUresult other(void)
{
    return CUDA_ERROR_INVALID_VALUE;
}

void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlsym(void *handle, const char *name);

void *__wrap_dlopen(const char *name, int flags)
{
    (void)flags;
    return strcmp(name, "libcuda.so.1") == 0 ? &library : NULL;
}

void *__wrap_dlsym(void *handle, const char *name)
{
    if (handle != &library || strcmp(name, "cuStreamGetGreenCtx") == 0) /* newer than the driver */
        return NULL;
    return (void *)(strcmp(name, "cuCtxGetCurrent") == 0 ? (uintptr_t)context_get : (uintptr_t)other);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *found)
{
    (void)name, (void)function, (void)flags, (void)found;
    return cudaErrorInvalidValue;
}

static void an_older_driver_has_the_functions(void **state)
{
    (void)state;
    const net_driver_t *driver = net_driver();
    assert_non_null(driver);
    assert_ptr_equal(driver->context_get, context_get);
    assert_null(driver->stream_green);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_older_driver_has_the_functions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
