/* SPDX-License-Identifier: Apache-2.0 */
/* scaled.h - the share of a test that fits the time. */
#ifndef TEST_SCALED_H
#define TEST_SCALED_H

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
