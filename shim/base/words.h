/* SPDX-License-Identifier: Apache-2.0 */
/* words.h - compares words of settings, ignoring case. strcasecmp depends on the locale ("INFO" in Turkish). */
#ifndef SHUNT_SHIM_WORDS_H
#define SHUNT_SHIM_WORDS_H

#include <stdbool.h>

bool shim_same_word(const char *a, const char *b);
bool shim_begins_with_word(const char *text, const char *word);
bool shim_has_word(const char *text, const char *word);

#endif
