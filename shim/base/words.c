/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/base/words.h"

#include <string.h>

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool shim_begins_with_word(const char *text, const char *word)
{
    while (*word && lower(*text) == lower(*word))
        text++, word++;
    return *word == '\0';
}

bool shim_same_word(const char *a, const char *b)
{
    return strlen(a) == strlen(b) && shim_begins_with_word(a, b);
}

bool shim_has_word(const char *text, const char *word)
{
    while (*text && !shim_begins_with_word(text, word))
        text++;
    return *text != '\0';
}
