/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_env.h - a variable as the real NCCL sees it.
 *
 * NCCL copies its configuration files into the environment at its first init,
 * where the environment has no value yet. Shunt decides before that, so
 * it looks in the same places in the same order: the environment, the file
 * that NCCL_CONF_FILE names (or ~/.nccl.conf), /etc/nccl.conf.
 */
#ifndef SHUNT_SHIM_NCCL_ENV_H
#define SHUNT_SHIM_NCCL_ENV_H

#include <stdbool.h>

/* The value, or NULL where nothing sets it. The files are read once; a value from them lives as long
 * as the process, one from the environment until the environment is changed. */
const char *shim_nccl_env(const char *name);
/* Whether it is set to this value, in any case of letters; to anything but nothing and "none". */
bool shim_nccl_env_is(const char *name, const char *value);
bool shim_nccl_env_names_something(const char *name);
/* The same as shim_nccl_env; *origin gets "environment" or the file's path where there is a value. */
const char *shim_nccl_env_from(const char *name, const char **origin);

#endif
