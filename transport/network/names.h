/* SPDX-License-Identifier: Apache-2.0 */
/* names.h - the lists of names in NCCL's variables. */
#ifndef SHUNT_NETWORK_NAMES_H
#define SHUNT_NETWORK_NAMES_H

#include <stdbool.h>

/* The list without its signs: "^" excludes its names, "=" compares whole names, not prefixes. */
static inline const char *names_of(const char *list, bool *excluded, bool *whole)
{
    *excluded = *list == '^';
    list += *excluded;
    *whole = *list == '=';
    return list + *whole;
}

#endif
