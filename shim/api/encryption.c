/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encryption.c - ncclSetEncryption (NCCL 2.32), by which a process asks NCCL to encrypt its TCP sockets.
 *
 * Shunt's connections between hosts are not encrypted. So from then on communicators of several hosts are the real
 * NCCL's, whatever the configuration says: its layout may grow.
 */
#include "shim/api/nccl.h"
#include "shim/setup/hosts.h"

SHIM_PUBLIC(ncclSetEncryption);
ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t *config)
{
    const shim_real_t *nccl = shim_nccl("ncclSetEncryption");
    const ncclResult_t result = nccl ? shim_nccl_answer(nccl->ncclSetEncryption(config)) : ncclSystemError;
    if (result == ncclSuccess)
        shim_hosts_encrypt();
    return result;
}
