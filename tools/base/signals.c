/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/base/signals.h"

#include <stdbool.h>
#include <stddef.h>

enum { SIGNALS = 3 };
static const int signals[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};

static bool is_ignored(int signal)
{
    struct sigaction before;
    return sigaction(signal, NULL, &before) != 0 || before.sa_handler == SIG_IGN;
}

void tool_signals_catch(void (*handler)(int signal))
{
    const struct sigaction action = {.sa_handler = handler};
    for (size_t i = 0; i < SIGNALS; i++) {
        if (!is_ignored(signals[i])) {
            sigaction(signals[i], &action, NULL);
        }
    }
}

void tool_signals_add(sigset_t *set)
{
    for (size_t i = 0; i < SIGNALS; i++) {
        if (!is_ignored(signals[i])) {
            sigaddset(set, signals[i]);
        }
    }
}

void tool_signals_ignore(void)
{
    for (size_t i = 0; i < SIGNALS; i++) {
        signal(signals[i], SIG_IGN);
    }
}
