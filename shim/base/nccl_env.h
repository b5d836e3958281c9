/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_env.h - a variable as the real NCCL sees it. At its first init NCCL copies variables from its configuration
 * files into the environment, unless set there. Shunt decides earlier, so it reads the same sources in order: the
 * environment, the file in NCCL_CONF_FILE (or ~/.nccl.conf), /etc/nccl.conf. */
#ifndef SHUNT_SHIM_NCCL_ENV_H
#define SHUNT_SHIM_NCCL_ENV_H

#include <stdbool.h>

/* NULL: not set. A value from a file lives as long as the process, one from the environment until that changes. */
const char *shim_nccl_env(const char *name);
/* _is: whether the variable has this value, ignoring case. _names_something: whether it is set, not empty and not
 * "none". _is_on: a number other than 0. */
bool shim_nccl_env_is(const char *name, const char *value);
bool shim_nccl_env_names_something(const char *name);
bool shim_nccl_env_is_on(const char *name);
bool shim_nccl_plugin_loaded(const char *library);
/* If there is a value, *origin is "environment" or the file's path. */
const char *shim_nccl_env_from(const char *name, const char **origin);

#endif
