/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/base/owner.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool shim_path_is_foreign(const char *path)
{
    char folder[4096];
    struct stat facts;
    if (geteuid() != 0)
        return false;
    snprintf(folder, sizeof(folder), "%s", path);
    for (char *slash = strchr(folder + (folder[0] == '/'), '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (stat(folder, &facts) == 0 && facts.st_uid != 0)
            return true;
        *slash = '/';
    }
    return false;
}
