/* SPDX-License-Identifier: Apache-2.0 */
/* probe.cu - the kernel of the attach proof. It stores one word to each peer as the algorithms do, since the driver's
 * copies may work where such stores do not. */
#include <cuda_runtime.h>

#include "algorithms/scratch_device.h"

/* The host waits for the kernel's end, then tells the peers to check. */
static __global__ void probe_store_words(alg_probe_t probe)
{
    const unsigned peer = threadIdx.x;
    if (probe.target[peer])
        *(volatile uint64_t *)probe.target[peer] = probe.word[peer];
    __threadfence_system();
}

int alg_probe_launch(const alg_probe_t *probe, void *stream)
{
    probe_store_words<<<1, ALG_MAX_RANKS, 0, (cudaStream_t)stream>>>(*probe);
    return (int)cudaGetLastError();
}

bool alg_probe_dependent(void)
{
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, (const void *)probe_store_words) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return attributes.ptxVersion >= 90;
}
