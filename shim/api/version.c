/* SPDX-License-Identifier: Apache-2.0 */
/* version.c - the version and the error texts. The real NCCL answers, since programs compare its answers. Without one,
 * the answers are those of the NCCL whose header Shunt was built with. */
#include "shim/base/last_error.h"
#include "shim/names/names.h"
#include "shim/real/real.h"

SHIM_PUBLIC(ncclGetVersion);
ncclResult_t ncclGetVersion(int *version)
{
    const shim_real_t *real = shim_real_used();
    if (real != NULL)
        return real->ncclGetVersion(version);
    if (version == NULL) {
        shim_set_last_error("ncclGetVersion: version is NULL");
        return ncclInvalidArgument;
    }
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

enum { TIMEOUT = 8 }; /* ncclTimeout, since NCCL 2.32 */

SHIM_PUBLIC(ncclGetErrorString);
const char *ncclGetErrorString(ncclResult_t result)
{
    const shim_real_t *real = shim_real_used();
    if (real != NULL)
        return real->ncclGetErrorString(result);
    switch ((int)result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    case TIMEOUT:
        return "timeout";
    default:
        return "unknown result code";
    }
}

/* Shunt's last error. A failed forwarded call clears it, so that the real NCCL's text is returned. */
SHIM_PUBLIC(ncclGetLastError);
const char *ncclGetLastError(ncclComm_t comm)
{
    const char *own = shim_last_error();
    const shim_real_t *real = shim_real_used();
    return own[0] != '\0' || real == NULL ? own : real->ncclGetLastError(comm);
}
