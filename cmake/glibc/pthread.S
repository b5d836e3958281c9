/* SPDX-License-Identifier: Apache-2.0 */
/* pthread.S - functions that glibc 2.32 and 2.34 moved from libpthread.so.0 into libc.so.6: Shunt's, then those of CUDA
 * 12.0 to 13.5. */
#include "old.inc"

    .irp name, pthread_create, pthread_join, pthread_key_create, pthread_mutex_trylock, pthread_once, \
        pthread_setspecific, pthread_sigmask
    old \name, 2.2.5
    .endr
    old pthread_condattr_setclock, 2.3.3

    .irp name, pthread_condattr_setpshared, pthread_detach, pthread_getspecific, pthread_key_delete, pthread_kill, \
        pthread_mutexattr_destroy, pthread_mutexattr_init, pthread_mutexattr_setpshared, pthread_mutexattr_settype, \
        pthread_rwlockattr_destroy, pthread_rwlockattr_init, pthread_rwlockattr_setpshared, pthread_rwlock_destroy, \
        pthread_rwlock_init, pthread_rwlock_rdlock, pthread_rwlock_timedrdlock, pthread_rwlock_timedwrlock, \
        pthread_rwlock_tryrdlock, pthread_rwlock_trywrlock, pthread_rwlock_unlock, pthread_rwlock_wrlock, \
        pthread_spin_destroy, pthread_spin_init, pthread_spin_lock, pthread_spin_trylock, pthread_spin_unlock, \
        sem_destroy, sem_init, sem_post, sem_timedwait, sem_trywait, sem_wait
    old \name, 2.2.5
    .endr
    old pthread_mutexattr_setprotocol, 2.4
