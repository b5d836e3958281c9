/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/base/pins.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/conf.h"
#include "shim/base/settings.h"

const char *shim_pin_forwards(void)
{
    if (shim_settings()->deterministic)
        return NULL;
    if (shim_nccl_env_names_something("NCCL_ALGO"))
        return "NCCL_ALGO";
    if (shim_nccl_env_names_something("NCCL_PROTO"))
        return "NCCL_PROTO";
    return shim_nccl_env_is("NCCL_LAUNCH_MODE", "GROUP") ? "NCCL_LAUNCH_MODE" : NULL;
}

uint32_t shim_pin_channels(void)
{
    const char *text = shim_settings()->deterministic ? NULL : shim_nccl_env("NCCL_MAX_NCHANNELS");
    const int channels = text != NULL ? atoi(text) : 0;
    return channels > 0 ? (uint32_t)channels : 0;
}

/* Whether NCCL_MAX_CTAS sets the limit of blocks. */
static bool blocks_are_nccls(void)
{
    shunt_setting_t row;
    return shim_setting_row(SHIM_SETTING_max_ctas, &row) && strcmp(row.origin, "NCCL_MAX_CTAS") == 0;
}

const char *shim_pin_caps(void)
{
    if (shim_pin_channels() > 0)
        return "NCCL_MAX_NCHANNELS";
    return shim_settings()->max_ctas > 0 && blocks_are_nccls() ? "NCCL_MAX_CTAS" : NULL;
}

void shim_pins_warn_alone(void)
{
    static atomic_bool told;
    if (shim_settings()->deterministic && !atomic_exchange(&told, true))
        shim_warn("SHUNT_DETERMINISTIC=1: communicators of one rank are forwarded to NCCL; a single rank has nothing "
                  "to add, so results stay reproducible, and nothing needs to be done");
}
