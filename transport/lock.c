/* SPDX-License-Identifier: Apache-2.0 */
/* lock.c - locks that are free in a forked child, where another thread's lock would stay locked, its data half changed.
 * A fork first takes all, in any order: no thread holds two. */
#include "transport/transport.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static net_lock_t *list;

static void before_fork(void)
{
    pthread_mutex_lock(&list_lock);
    for (net_lock_t *lock = list; lock; lock = lock->next)
        pthread_mutex_lock(&lock->mutex);
}

static void after_fork(void)
{
    for (net_lock_t *lock = list; lock; lock = lock->next)
        pthread_mutex_unlock(&lock->mutex);
    pthread_mutex_unlock(&list_lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

void net_lock_watch_forks(void)
{
    pthread_once(&once, watch_forks);
}

static void enlist(net_lock_t *lock)
{
    net_lock_watch_forks();
    pthread_mutex_lock(&list_lock);
    if (!lock->listed) {
        lock->next = list;
        list = lock;
        __atomic_store_n(&lock->listed, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&list_lock);
}

void net_lock_take(net_lock_t *lock)
{
    if (!__atomic_load_n(&lock->listed, __ATOMIC_ACQUIRE))
        enlist(lock);
    pthread_mutex_lock(&lock->mutex);
}

void net_lock_give(net_lock_t *lock)
{
    pthread_mutex_unlock(&lock->mutex);
}
