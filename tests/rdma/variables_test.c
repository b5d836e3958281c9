/* SPDX-License-Identifier: Apache-2.0 */
/* variables_test.c - what the variables say of the RDMA port, as the network is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "shim/nodes/rdma.h"

static net_rdma_t read_wish(void)
{
    static shim_rdma_t rdma;
    shim_rdma_read(-1, &rdma);
    return rdma.wish;
}

static void library(void **state)
{
    (void)state;
    setenv("SHUNT_IBV_SO", "/some/libibverbs.so", 1);
    assert_string_equal(read_wish().library, "/some/libibverbs.so");
    assert_null(read_wish().off);
}

static void ib_variables(void **state)
{
    (void)state;
    net_rdma_t wish = read_wish();
    assert_null(wish.devices);
    assert_int_equal(wish.gid_index, -1);
    assert_int_equal(wish.service_level, 0);
    assert_int_equal(wish.traffic_class, 0);
    assert_int_equal(wish.pkey_index, 0);
    assert_int_equal(wish.timeout, 20);
    assert_int_equal(wish.retries, 7);
    setenv("NCCL_IB_HCA", "=mlx5_1:1", 1);
    setenv("NCCL_IB_GID_INDEX", "3", 1);
    setenv("NCCL_IB_SL", "5", 1);
    setenv("NCCL_IB_TC", "0x6a", 1);
    setenv("NCCL_IB_PKEY", "4", 1);
    setenv("NCCL_IB_TIMEOUT", "14", 1);
    setenv("NCCL_IB_RETRY_CNT", "2", 1);
    wish = read_wish();
    assert_string_equal(wish.devices, "=mlx5_1:1");
    assert_int_equal(wish.gid_index, 3);
    assert_int_equal(wish.service_level, 5);
    assert_int_equal(wish.traffic_class, 106);
    assert_int_equal(wish.pkey_index, 4);
    assert_int_equal(wish.timeout, 14);
    assert_int_equal(wish.retries, 2);
}

static void no_rdma(void **state)
{
    (void)state;
    setenv("NCCL_NET", "Socket", 1);
    assert_string_equal(read_wish().off, "NCCL_NET is not IB");
    setenv("NCCL_NET", "IB", 1);
    assert_null(read_wish().off);
    setenv("NCCL_IB_DISABLE", "1", 1);
    assert_string_equal(read_wish().off, "NCCL_IB_DISABLE is set");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(library), cmocka_unit_test(ib_variables),
                                       cmocka_unit_test(no_rdma)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
