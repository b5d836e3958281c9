/* SPDX-License-Identifier: Apache-2.0 */
/* libnccl.c - finds Shunt's libnccl.so.2. The weak references are bound when this library is loaded, if Shunt is in the
 * global scope then. A libnccl.so.2 opened later, or locally (by Python), is found by its SONAME. */
#define _GNU_SOURCE
#include "shim/ep/libnccl.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "shunt.h"

/* real.c recognizes this library by this name, to which no library of NVIDIA refers. */
extern __typeof__(shuntExperts) shuntExperts __attribute__((weak));
extern __typeof__(shunt_setting) shunt_setting __attribute__((weak));

static void *in_loaded_nccl(const char *name)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library)
        return NULL;
    void *address = dlsym(library, name);
    dlclose(library); /* it stays loaded: its loader holds it */
    return address;
}

const shim_experts_service_t *shim_ep_service(void)
{
    __typeof__(&shuntExperts) find = shuntExperts;
    if (!find)
        find = (__typeof__(find))in_loaded_nccl("shuntExperts");
    return find ? find(SHIM_EXPERTS_VERSION) : NULL;
}

const char *shim_ep_setting(const char *name)
{
    shunt_setting_t setting;
    __typeof__(&shunt_setting) read = shunt_setting;
    if (!read)
        read = (__typeof__(read))in_loaded_nccl("shunt_setting");
    for (uint32_t i = 0; read && read(i, &setting) == 0; i++)
        if (strcmp(setting.name, name) == 0)
            return setting.value;
    const char *value = secure_getenv(name);
    return value ? value : "";
}
