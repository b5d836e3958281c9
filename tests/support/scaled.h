/* SPDX-License-Identifier: Apache-2.0 */
/* scaled.h - the share of a test that fits the time. */
#ifndef TEST_SCALED_H
#define TEST_SCALED_H

/* The thread sanitizer sees one process: ranks that are processes show it little, and more bytes nothing. */
#if defined(__SANITIZE_THREAD__)
enum { SEES_THREADS = 1 };
#else
enum { SEES_THREADS = 0 };
#endif

/* n, or less under a sanitizer; at least 1. */
static inline int scaled(int n)
{
#if defined(__SANITIZE_THREAD__)
    n /= 10;
#elif defined(__SANITIZE_ADDRESS__)
    n /= 4;
#endif
    return n > 0 ? n : 1;
}

#endif
