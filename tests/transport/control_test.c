/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control_test.c - control words on a fake CUDA: they outlive a device reset and the driver's end, since the proxy
 * reads them without CUDA; a fork does not separate them from the device's; a refused allocation leaves nothing.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "algorithms/scratch_device.h"

/* ---- CUDA ------------------------------------------------------------------------------ */

static void *allocated, *registered;
static bool refuses, has_no_address;

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    (void)flags;
    *pointer = allocated = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return allocated == MAP_FAILED ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFreeHost(void *pointer)
{
    (void)munmap(pointer, 1);
    allocated = NULL;
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    if (refuses)
        return cudaErrorMemoryAllocation;
    assert_true(bytes >= sizeof(alg_control_t) && flags == (cudaHostRegisterPortable | cudaHostRegisterMapped));
    registered = pointer;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer)
{
    const bool known = pointer == registered;
    registered = known ? NULL : registered;
    return known ? cudaSuccess : cudaErrorNotPermitted;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *pointer, unsigned flags)
{
    (void)flags;
    *device = (uint8_t *)pointer + 4096; /* devices may have addresses of their own */
    return has_no_address ? cudaErrorNotPermitted : cudaSuccess;
}

/* Behaves as cudaDeviceReset, or as the driver's end at exit. */
static void reset_device(void)
{
    if (allocated)
        (void)munmap(allocated, sizeof(alg_control_t));
    allocated = registered = NULL;
}

/* ---- Tests ----------------------------------------------------------------------------- */

static bool is_mapped(const void *at)
{
    return msync((void *)(uintptr_t)at, 1, MS_ASYNC) == 0;
}

static int reset(void **state)
{
    (void)state;
    allocated = registered = NULL;
    refuses = has_no_address = false;
    return 0;
}

static void made_and_ended(void **state)
{
    (void)state;
    static const alg_control_t zero;
    alg_control_t *host, *device;
    assert_int_equal(alg_control_create_cuda(0, &host, &device), 0);
    assert_memory_equal(host, &zero, sizeof zero);
    assert_ptr_equal(device, (uint8_t *)host + 4096);
    alg_control_destroy_cuda(0, host);
    assert_false(is_mapped(host));
    assert_null(registered);
}

static void outlive_the_device(void **state)
{
    (void)state;
    alg_control_t *host, *device;
    assert_int_equal(alg_control_create_cuda(0, &host, &device), 0);
    host->abort = 1;
    reset_device();
    assert_true(is_mapped(host));
    assert_int_equal(host->abort, 1);
    alg_control_destroy_cuda(0, host); /* not registered any more */
    assert_true(is_mapped(host));
    (void)munmap(host, sizeof *host);
}

static void one_page_after_a_fork(void **state)
{
    (void)state;
    alg_control_t *host, *device;
    int status;
    assert_int_equal(alg_control_create_cuda(0, &host, &device), 0);
    const pid_t child = fork();
    if (child == 0) {
        host->status = ALG_STATUS_TIMEOUT; /* the first to write has a page of its own, if it is private */
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(host->status, ALG_STATUS_TIMEOUT);
    alg_control_destroy_cuda(0, host);
}

static void refused(void **state)
{
    (void)state;
    alg_control_t *host = NULL, *device = NULL;
    refuses = true;
    assert_int_equal(alg_control_create_cuda(0, &host, &device), -ENOMEM);
    refuses = false;
    has_no_address = true;
    assert_int_equal(alg_control_create_cuda(0, &host, &device), -EAGAIN);
    assert_true(!registered && !host && !device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(made_and_ended, reset),
        cmocka_unit_test_setup(outlive_the_device, reset),
        cmocka_unit_test_setup(one_page_after_a_fork, reset),
        cmocka_unit_test_setup(refused, reset),
    };
    return cmocka_run_group_tests_name("control", tests, NULL, NULL);
}
