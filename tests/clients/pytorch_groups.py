#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's process groups, made, split and destroyed repeatedly, with Shunt and without.

Groups over subsets, with destroy_process_group and dropped without it; a long-lived group beside short-lived ones over
the same ranks, with constant device memory; split_group; a group that is aborted; and another runtime (ctypes) that
uses PyTorch's communicator for all-gather, reduce-scatter and all-reduce on its own stream. Needs PyTorch with CUDA and
two GPUs or more. The last line is `N passed, N failed`.
"""

import ctypes
import gc
import os
import time
import traceback

import client

ROUNDS, SLACK = 12, 8 << 20


class Ranks:
    def __init__(self, torch, dist):
        self.torch, self.dist = torch, dist
        self.local = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(self.local)
        self.device = torch.device("cuda", self.local)
        # With "cpu:gloo,cuda:nccl", split_group makes gloo groups of both halves under one key of the store, and hangs.
        dist.init_process_group("nccl", device_id=self.device)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.talk = dist.new_group(backend="gloo")

    def right(self, group=None, members=None):
        """Whether an all-reduce of the group is right."""
        members = members or list(range(self.size))
        x = self.torch.full((1003,), float(self.rank + 1), device=self.device)
        self.dist.all_reduce(x, group=group)
        return bool((x == float(sum(r + 1 for r in members))).all())

    def check(self, name, body):
        try:
            good, why = bool(body()), ""
        except Exception:
            good, why = False, traceback.format_exc(limit=3)
        self.torch.cuda.synchronize()
        both = [None] * self.size
        self.dist.all_gather_object(both, (good, why), group=self.talk)
        if self.rank == 0:
            client.report({name: all(g for g, _ in both)})
            for r, (g, text) in enumerate(both):
                if not g:
                    print(f"NOTE rank {r}: {name}: {text!r}", flush=True)


def subsets(t, destroy):
    for i in range(ROUNDS):
        members = [r for r in range(t.size) if r == 0 or (r + i) % 3 or t.size == 2]
        if len(members) < 2:
            continue
        group = t.dist.new_group(members)
        if t.rank in members and not t.right(group, members):
            return False
        t.torch.cuda.synchronize()
        if destroy and t.rank in members:
            t.dist.destroy_process_group(group)
        del group
        gc.collect()
    return t.right()


def lasting(t):
    """Memory is constant: the second and all later creations reuse the first one's memory."""
    group, times, free = t.dist.new_group(list(range(t.size))), [], []
    for _ in range(ROUNDS):
        t.torch.cuda.synchronize()
        start = time.monotonic()
        short = t.dist.new_group(list(range(t.size)))
        good = t.right(short) and t.right(group)
        times.append(time.monotonic() - start)
        t.torch.cuda.synchronize()
        t.dist.destroy_process_group(short)
        t.torch.cuda.empty_cache()
        free.append(t.torch.cuda.mem_get_info()[0])
        if not good:
            return False
    if t.rank == 0:
        print("NOTE group and first call, ms: " + " ".join(f"{1000 * s:.0f}" for s in times), flush=True)
    return free[2] - free[-1] <= SLACK


def split(t):
    half = [list(range(t.size // 2)), list(range(t.size // 2, t.size))]
    group = t.dist.split_group(split_ranks=half)
    good = t.right(group, next(h for h in half if t.rank in h))
    t.dist.destroy_process_group(group)
    return good and t.right()


def aborted(t):
    group = t.dist.new_group(list(range(t.size)))
    good = t.right(group)
    t.torch.cuda.synchronize()
    group._get_backend(t.device).abort()
    return good and t.right()


def handed(t):
    """Another library uses PyTorch's communicator on a stream of its own."""
    comm = ctypes.c_void_p(t.dist.group.WORLD._get_backend(t.device)._comm_ptr())
    nccl = ctypes.CDLL("libnccl.so.2")
    side = t.torch.cuda.Stream()
    count = 4096
    own = t.torch.full((count,), float(t.rank + 1), device=t.device)
    every, piece, total = (t.torch.zeros(n, device=t.device) for n in (count * t.size, count, count))
    t.torch.cuda.synchronize()
    stream, size = ctypes.c_void_p(side.cuda_stream), ctypes.c_size_t(count)
    at = lambda x: ctypes.c_void_p(x.data_ptr())
    results = [nccl.ncclAllGather(at(own), at(every), size, 7, comm, stream),
               nccl.ncclReduceScatter(at(every), at(piece), size, 7, 0, comm, stream),
               nccl.ncclAllReduce(at(own), at(total), size, 7, 0, comm, stream)]
    side.synchronize()
    return (not any(results) and bool((piece == float((t.rank + 1) * t.size)).all())
            and bool((total == float(t.size * (t.size + 1) // 2)).all()) and t.right())


def worker(options):
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        client.skip(f"no PyTorch: {error}")
    t = Ranks(torch, dist)
    for name, body in (("subsets, destroyed", lambda: subsets(t, True)), ("subsets, dropped", lambda: subsets(t, False)),
                       ("lasting beside short", lambda: lasting(t)), ("split", lambda: split(t)),
                       ("handed", lambda: handed(t)), ("aborted", lambda: aborted(t))):
        if client.wanted(options, name):
            t.check(name, body)
    dist.destroy_process_group()


if __name__ == "__main__":
    client.compare(__doc__, worker, seconds=90, torchrun_ranks=True)
