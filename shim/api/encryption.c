/* SPDX-License-Identifier: Apache-2.0 */
/* encryption.c - ncclSetEncryption (NCCL 2.32) makes NCCL encrypt the process's TCP sockets. Shunt's are not encrypted:
 * after a success the real NCCL runs all communicators of several nodes. Shunt does not read the argument, which may
 * grow. */
#include "shim/api/nccl.h"
#include "shim/nodes/nodes.h"

SHIM_PUBLIC(ncclSetEncryption);
ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t *config)
{
    const ncclResult_t result = shim_nccl_answer(shim_nccl()->ncclSetEncryption(config));
    if (result == ncclSuccess)
        shim_nodes_encrypt();
    return result;
}
