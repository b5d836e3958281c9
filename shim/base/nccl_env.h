/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_env.h - a variable as the real NCCL sees it. At its first init NCCL copies its configuration files into the
 * environment, where that has no value. Shunt decides earlier, so it reads the same places in the same order:
 * environment, NCCL_CONF_FILE's file (or ~/.nccl.conf), /etc/nccl.conf.
 */
#ifndef SHUNT_SHIM_NCCL_ENV_H
#define SHUNT_SHIM_NCCL_ENV_H

#include <stdbool.h>

/* NULL: not set. Files are read once; their values live as long as the process, the environment's until it changes. */
const char *shim_nccl_env(const char *name);
/* Whether it has this value, in any case of letters; whether it is neither unset, empty nor "none". */
bool shim_nccl_env_is(const char *name, const char *value);
bool shim_nccl_env_names_something(const char *name);
/* *origin gets "environment" or the file's path if there is a value. */
const char *shim_nccl_env_from(const char *name, const char **origin);

#endif
