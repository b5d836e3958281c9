/* SPDX-License-Identifier: Apache-2.0 */
/* comm_test.c - the table of communicators: look-ups, removal, and look-ups beside writers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake.h"
#include "shim/comm/reap.h"

enum { MANY = 3000, HANDLES = 8, ROUNDS = 20000 };

static ncclComm_t handle_of(uintptr_t number)
{
    return (ncclComm_t)(0x10000 + number * 16);
}

/* In the table, which then holds the only reference. */
static shim_comm_t *add(uintptr_t number)
{
    shim_comm_t *comm = shim_comm_new(&shim_device_cuda);
    assert_non_null(comm);
    atomic_store(&comm->handle, handle_of(number));
    comm->rank = (uint32_t)number;
    assert_true(shim_comm_insert(comm));
    shim_comm_release(comm);
    return comm;
}

static void drop(uintptr_t number)
{
    shim_comm_t *comm = shim_comm_find(handle_of(number));
    assert_non_null(comm);
    assert_true(shim_comm_drop(comm, handle_of(number)));
    shim_comm_reap();
}

static void finds_added_handles(void **state)
{
    (void)state;
    assert_null(shim_comm_find(NULL));
    assert_null(shim_comm_find(handle_of(1)));
    for (uintptr_t i = 0; i < MANY; i++)
        add(i);
    for (uintptr_t i = 0; i < MANY; i++)
        assert_int_equal(shim_comm_find(handle_of(i))->rank, i);
    assert_null(shim_comm_find(handle_of(MANY)));
    for (uintptr_t i = 0; i < MANY; i += 2)
        drop(i);
    for (uintptr_t i = 0; i < MANY; i++)
        assert_true((shim_comm_find(handle_of(i)) != NULL) == (i % 2 == 1));
    for (uintptr_t i = 1; i < MANY; i += 2)
        drop(i);
}

/* The table and the cost of a miss do not grow with the number of handles that were made and removed. */
static void many_handles_do_not_fill_the_table(void **state)
{
    (void)state;
    for (uintptr_t i = 0; i < 200000; i++) {
        add(i);
        drop(i);
    }
    assert_null(shim_comm_find(handle_of(7)));
}

static void overwrites(void **state)
{
    (void)state;
    shim_comm_t *first = add(5);
    shim_comm_retain(first);
    shim_comm_t *second = add(5);
    assert_ptr_equal(shim_comm_find(handle_of(5)), second);
    assert_int_equal(first->phase, SHIM_COMM_DEAD);
    assert_int_equal(first->references, 1);
    shim_comm_release(first);
    drop(5);
}

static void references_keep(void **state)
{
    (void)state;
    add(9);
    shim_comm_t *comm = shim_comm_acquire(handle_of(9));
    assert_int_equal(comm->references, 2);
    drop(9);
    assert_int_equal(comm->references, 1);
    assert_ptr_equal(atomic_load(&comm->handle), handle_of(9));
    assert_null(shim_comm_acquire(handle_of(9)));
    shim_comm_release(comm);
    shim_comm_reap();
    assert_null(atomic_load(&comm->handle)); /* recycled, not unmapped */
}

static void a_child_inherits_no_communicator(void **state)
{
    (void)state;
    add(3);
    pid_t child = fork();
    if (child == 0)
        _exit(shim_comm_find(handle_of(3)) || shim_comm_acquire(handle_of(3)) ? 1 : 0);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    drop(3);
}

static atomic_bool stop;

static void *look(void *unused)
{
    uintptr_t i = 0;
    while (!atomic_load(&stop)) {
        uintptr_t number = i++ % HANDLES;
        shim_comm_t *comm = shim_comm_acquire(handle_of(number));
        if (!comm)
            continue;
        if (atomic_load(&comm->handle) != handle_of(number))
            abort(); /* with a reference it must be the state of its handle */
        shim_comm_release(comm);
    }
    return unused;
}

static void look_ups_beside_writers(void **state)
{
    (void)state;
    pthread_t readers[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&readers[i], NULL, look, NULL);
    for (uintptr_t round = 0; round < ROUNDS; round++) {
        add(round % HANDLES);
        drop(round % HANDLES);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
    shim_comm_reap();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_handles_do_not_fill_the_table),
        cmocka_unit_test(overwrites),
        cmocka_unit_test(references_keep),
        cmocka_unit_test(a_child_inherits_no_communicator),
        cmocka_unit_test(look_ups_beside_writers),
        cmocka_unit_test(finds_added_handles), /* last: each reap looks at as many states as there ever were at once */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
