/* SPDX-License-Identifier: Apache-2.0 */
/* encryption.c - ncclSetEncryption (NCCL 2.32) makes NCCL encrypt the process's TCP sockets. Shunt's are not encrypted:
 * after a success the real NCCL runs all communicators of several nodes. Shunt does not read the argument, which may
 * grow. */
#include "shim/api/nccl.h"
#include "shim/nodes/nodes.h"

SHIM_PUBLIC(ncclSetEncryption);
ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t *config)
{
    const shim_real_t *nccl = shim_nccl("ncclSetEncryption");
    const ncclResult_t result = nccl ? shim_nccl_answer(nccl->ncclSetEncryption(config)) : ncclSystemError;
    if (result == ncclSuccess)
        shim_nodes_encrypt();
    return result;
}
