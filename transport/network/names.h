/* SPDX-License-Identifier: Apache-2.0 */
/* names.h - the lists of names in NCCL's variables. */
#ifndef SHUNT_NETWORK_NAMES_H
#define SHUNT_NETWORK_NAMES_H

#include <stdbool.h>

/* The list after its prefixes: "^" excludes the names, "=" compares whole names. */
static inline const char *names_of(const char *list, bool *excluded, bool *whole)
{
    *excluded = *list == '^';
    list += *excluded;
    *whole = *list == '=';
    return list + *whole;
}

#endif
