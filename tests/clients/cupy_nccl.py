#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CuPy with Shunt and without: cupy.cuda.nccl in one process, cupyx.distributed with a process a GPU.

Needs CuPy built with NCCL and two GPUs or more. CuPy opens NCCL by an absolute path where it finds a
wheel, so Shunt is loaded by the audit library. The last line is `N passed, N failed`.
"""

import multiprocessing

import client

COUNTS = (1, 17, 1000, 65537, 1 << 20)


def pattern(cupy, count, d, dtype):
    return (cupy.arange(count) % 7 + d).astype(dtype)


def total(cupy, count, n, dtype):
    return ((cupy.arange(count) % 7) * n + n * (n - 1) // 2).astype(dtype)


def one_process(cupy, nccl, n):
    comms = nccl.NcclCommunicator.initAll(n)
    types = {"float32": nccl.NCCL_FLOAT32, "float64": nccl.NCCL_FLOAT64, "float16": nccl.NCCL_FLOAT16,
             "int32": nccl.NCCL_INT32, "int64": nccl.NCCL_INT64, "uint8": nccl.NCCL_UINT8}
    results = {}
    for dtype, code in types.items():
        for count in COUNTS:
            sends, receives = [], []
            for d in range(n):
                with cupy.cuda.Device(d):
                    sends.append(pattern(cupy, count, d, dtype))
                    receives.append(cupy.zeros(count, dtype))
                    cupy.cuda.Device(d).synchronize()
            nccl.groupStart()
            for d in range(n):
                with cupy.cuda.Device(d):
                    comms[d].allReduce(sends[d].data.ptr, receives[d].data.ptr, count, code, nccl.NCCL_SUM,
                                       cupy.cuda.Stream.null.ptr)
            nccl.groupEnd()
            good = True
            for d in range(n):
                with cupy.cuda.Device(d):
                    cupy.cuda.Device(d).synchronize()
                    good = good and bool((receives[d] == total(cupy, count, n, dtype)).all())
            results[f"nccl {dtype} {count}"] = good
    for comm in comms:
        comm.destroy()
    return results


def rank_main(rank, n, port, pipe):
    # CuPy's store runs in its own process and holds a lock, which cannot be passed to a spawned process.
    multiprocessing.set_start_method("fork", force=True)
    import cupy
    import cupyx.distributed

    cupy.cuda.Device(rank).use()
    comm = cupyx.distributed.init_process_group(n, rank, host="127.0.0.1", port=port)
    results = {}
    for count in COUNTS:
        own = pattern(cupy, count, rank, "float32")
        reduced, gathered = cupy.zeros(count, "float32"), cupy.zeros((n, count), "float32")
        comm.all_reduce(own, reduced, "sum")
        comm.all_gather(own, gathered, count)
        comm.broadcast(own, root=n - 1)
        everything = cupy.stack([pattern(cupy, count, r, "float32") for r in range(n)])
        results[f"distributed {count}"] = bool((reduced == total(cupy, count, n, "float32")).all()
                                               and (gathered == everything).all()
                                               and (own == everything[n - 1]).all())
    comm.barrier()
    comm.stop()
    pipe.send(results)


def processes(n):
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(n)]
    port = 20000 + multiprocessing.current_process().pid % 20000
    ranks = [context.Process(target=rank_main, args=(r, n, port, pipes[r][1])) for r in range(n)]
    for rank in ranks:
        rank.start()
    every = [pipe.recv() if pipe.poll(30) else {} for pipe, _ in pipes]
    for rank in ranks:
        rank.join(5)
        rank.kill()
    return {name: all(results.get(name, False) for results in every)
            for name in (f"distributed {count}" for count in COUNTS)}


def worker(options):
    try:
        import cupy
        from cupy.cuda import nccl
    except ImportError as error:
        client.skip(f"no CuPy with NCCL: {error}")
    n = cupy.cuda.runtime.getDeviceCount()
    if n < 2:
        client.skip("CuPy sees fewer than two GPUs")
    if client.wanted(options, "nccl"):
        client.report(one_process(cupy, nccl, n))
    if client.wanted(options, "distributed"):
        client.report(processes(n))


if __name__ == "__main__":
    client.compare(__doc__, worker, audit=True)
