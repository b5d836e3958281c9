#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NCCL's own Python bindings (nccl4py) on PyTorch's tensors, a process a GPU, with Shunt and without.

Needs nccl4py, PyTorch with CUDA, and two GPUs or more. The bindings find NCCL through cuda.pathfinder, by an
absolute path, so Shunt is loaded by the audit library. The last line is `N passed, N failed`.
"""

import os
import traceback

import client


def checks(nccl, torch, comm, rank, n):
    device = torch.device("cuda", rank)
    operators = {"sum": (nccl.SUM, sum), "max": (nccl.MAX, max), "min": (nccl.MIN, min)}
    results = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32):
        for name, (op, reference) in operators.items():
            x = torch.full((1003,), rank + 1, dtype=dtype, device=device)
            out = torch.zeros_like(x)
            comm.allreduce(x, out, op)
            torch.cuda.synchronize()
            results[f"allreduce {str(dtype)[6:]} {name}"] = bool((out == reference(range(1, n + 1))).all())
    own = torch.full((100,), float(rank), device=device)
    every = torch.zeros(100 * n, device=device)
    comm.allgather(own, every)
    child = comm.split(rank % 2, rank)
    total = torch.ones(7, device=device)
    child.allreduce(total, total, nccl.SUM)
    torch.cuda.synchronize()
    results["allgather"] = bool((every.view(n, 100) == torch.arange(n, device=device).view(n, 1)).all())
    results["split"] = bool((total == float((n + 1 - rank % 2) // 2)).all()) and child.nranks == (n + 1 - rank % 2) // 2
    child.destroy()
    return results


def worker(options):
    try:
        import nccl.core as nccl
        import torch
        import torch.distributed as dist
    except ImportError as error:
        client.skip(f"no nccl4py, or no PyTorch: {error}")
    rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    dist.init_process_group("gloo")
    every = [nccl.get_unique_id() if rank == 0 else None]
    dist.broadcast_object_list(every)
    try:
        comm = nccl.Communicator.init(nranks=n, rank=rank, unique_id=every[0])
        results = checks(nccl, torch, comm, rank, n)
        comm.destroy()
    except Exception:
        results = {"all": False}
        print(f"NOTE rank {rank}: {traceback.format_exc(limit=3)!r}", flush=True)
    gathered = [None] * n
    dist.all_gather_object(gathered, results)
    if rank == 0:
        client.report({name: all(one.get(name, False) for one in gathered) for name in gathered[0]})
    dist.destroy_process_group()


if __name__ == "__main__":
    client.compare(__doc__, worker, torchrun_ranks=True, audit=True)
